"""Evaluation in JAX: whole episodes of many environments in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from arrayferry.typing import AnyArray, JaxArray
from arrayferry_envs._around.wrapped import freeze
from arrayferry_envs._evaluation import Evaluation
from arrayferry_gym.extending import select, summed

from .arguments import Call, Program, Values
from .rollout import Steps

_SHOW: list[Callable[[int], None]] = []
"""The functions that show the progress of running evaluations, in the order in which the evaluations began."""


@jax.transfer_guard("allow")  # type: ignore[untyped-decorator]  # no hidden transfers
def evaluate_compiled(call: Call, gamma: Any, show: Callable[[int], None]) -> Evaluation[JaxArray]:
    """Run several episodes in each of many environments, in one compiled `lax.while_loop`.

    Args:
        call: the arguments of the evaluation. `call.options` are the number of episodes in each environment, and
            whether to show progress.
        gamma: the discount factor.
        show: a function that shows progress. It is called with the number of episodes that have ended.
    """
    gamma = jnp.asarray(gamma, float)
    if not call.options[1]:
        return call(_evaluate, gamma)  # type: ignore[no-any-return]
    _SHOW.append(show)
    try:
        results = call(_evaluate, gamma)
        jax.block_until_ready(results)
        jax.effects_barrier()
    finally:
        _SHOW.remove(show)  # `pop` could remove another thread's function
    return results  # type: ignore[no-any-return]


def _show(count: Any) -> None:
    # the slice is empty if other threads have emptied the list
    for show in _SHOW[-1:]:
        show(int(count))


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(program: Program, values: Values, gamma: Any) -> Any:
    episodes, shows_progress = program.call.options
    num_envs = program.call.num_envs
    values = values._replace(wrapper_state=freeze(values.wrapper_state))
    steps = Steps(program, values, extras=False)
    reset_key, key = jax.random.split(values.key)
    carry = steps.start(reset_key)
    total = carry.episode_return

    def needs_steps(loop: Any) -> Any:
        _, _, _, _, num_finished, _ = loop
        return (num_finished < episodes).any()

    def loop_step(loop: Any) -> Any:
        carry, factor, discounted, key, num_finished, results = loop
        key, step_key = jax.random.split(key)
        began = carry.began
        carry, transition, _ = steps.take(carry, step_key)
        factor = factor * gamma.astype(total.dtype)
        factor = select(jnp, began, jnp.ones_like(factor), factor)
        reward = factor * transition.reward.astype(total.dtype)
        discounted = summed(jnp, began, discounted, reward)
        ended = transition.terminated | transition.truncated
        end_flags = transition.terminated, transition.truncated
        latest_results = Evaluation(
            transition.episode_return, discounted, transition.episode_length, *end_flags
        )

        def record_ended(old: Any, new: Any) -> Any:
            # where no episode has ended, `episode_index` is out of bounds, so that nothing is written
            episode_index = jnp.where(ended, num_finished, episodes)
            return old.at[jnp.arange(num_envs), episode_index].set(new, mode="drop")

        results = jax.tree.map(record_ended, results, latest_results)
        num_finished = num_finished + ended.astype(num_finished.dtype)
        if shows_progress:
            num_done = jnp.minimum(num_finished, episodes).sum()
            jax.lax.cond(ended.any(), lambda: jax.debug.callback(_show, num_done), lambda: None)
        return carry, factor, discounted, key, num_finished, results

    def empty_results(x: AnyArray) -> Any:
        return jnp.zeros((num_envs, episodes, *x.shape[1:]), x.dtype)

    flags = jnp.zeros(num_envs, bool)
    results = Evaluation(total, total, carry.episode_length, flags, flags)
    results = jax.tree.map(empty_results, results)
    num_finished = jnp.zeros(num_envs, jnp.int32)
    loop = carry, jnp.ones_like(total), total, key, num_finished, results
    return jax.lax.while_loop(needs_steps, loop_step, loop)[-1]
