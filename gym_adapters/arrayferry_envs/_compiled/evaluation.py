"""Evaluation in JAX: whole episodes of many environments in one compiled call, one of each or several."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry.typing import JaxArray
from arrayferry_envs._around.wrapped import freeze
from arrayferry_envs._contract.dynamics import Dynamics
from arrayferry_envs._contract.policies import Policy
from arrayferry_envs._evaluation import Evaluation
from arrayferry_envs._host import HostFunctions
from arrayferry_gym._arrays import select
from arrayferry_gym._episodes import summed
from arrayferry_gym._options.env_options import UNSET

from .arguments import Call, Program, Values
from .rollout import Steps


class Episode(NamedTuple):
    """One episode in each of `n` environments.

    Attributes:
        total: the sum of the rewards of each, (n,), computed in float32, or in the dtype of the rewards if that is
            wider.
        length: the number of steps of each, int32 (n,).
        terminated: whether it has terminated, rather than reached a step limit, bool (n,).
        final_observation: its last observation, (n, ...).
    """

    total: JaxArray
    length: JaxArray
    terminated: JaxArray
    final_observation: Any


_SHOW: list[Callable[[int], None]] = []
"""Functions that show the progress of running evaluations; that of the innermost evaluation is the last."""


def evaluate_compiled(
    call: Call, episodes: int, discount: Any, show: Callable[[int], None] | None
) -> Evaluation[JaxArray]:
    """Run several episodes in each of many environments, in one compiled `lax.while_loop`.

    Args:
        call: the environments and the policy.
        episodes: the number of episodes in each environment.
        discount: the discount factor.
        show: is called with the number of episodes that have ended, None if nobody wants to know.
    """
    program = call.program(episodes, False, show is not None)
    if show is None:
        return _evaluate(program, call.values, jnp.asarray(discount, float))  # type: ignore[no-any-return]
    _SHOW.append(show)
    try:
        results = _evaluate(program, call.values, jnp.asarray(discount, float))
        jax.block_until_ready(results)
        jax.effects_barrier()
    finally:
        _SHOW.remove(show)  # another thread may have added one
    return results  # type: ignore[no-any-return]


def _show(count: Any) -> None:
    for show in _SHOW[-1:]:  # another thread may remove the last one meanwhile
        show(int(count))


def episode(
    env: Dynamics,
    policy: Policy,
    policy_params: Any,
    key: Any,
    num_envs: int = 1,
    *,
    env_params: Any = None,
    max_episode_steps: Any = UNSET,
    policy_state: Any = None,
    wrapper_state: Any = None,
    sharding: Any = None,
) -> Episode:
    """Run one episode in each of many environments to its end, in one compiled `lax.while_loop`.

    The number of steps is not known in advance, so reverse-mode gradients are not available, and all environments,
    including those of a `vmap`, wait for the longest episode. For gradients, and for equal amounts of work, use
    `rollout`.

    Args:
        env: the environment.
        policy: as in `rollout`. Its results other than the action are not used.
        policy_params: as in `rollout`.
        key: a JAX key.
        num_envs: the number of environments.
        env_params: as in `rollout`.
        max_episode_steps: as in `rollout`. If it is None, episodes must terminate by themselves.
        policy_state: as in `rollout`.
        wrapper_state: for an environment made by `wrap`: `carry.running.wrappers` of another rollout, or the result
            of the environment's `state_dict` for it. The statistics are used but not updated.
            Without it, statistics begin anew, with a warning.
        sharding: as in `rollout`.

    Returns:
        The sums of rewards, and how the episodes ended.

    Raises:
        arrayferry.OptionError: an argument is invalid.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, episode
        >>> def policy(params, observation, key):
        ...     return (observation[:, 2] > 0).astype(int), None
        >>> episodes = episode(CartPole(), policy, None, jax.random.key(0), 4)
        >>> bool((episodes.total == episodes.length).all())
        True
    """
    if isinstance(env, HostFunctions):
        raise af.OptionError(
            f"{env.name} is an ordinary environment, which episode() cannot run",
            remedy="Use rollout(), or a jax.lax.while_loop with its reset and step.",
        )
    call = Call(
        "episode", env, policy, policy_params, key, num_envs, env_params, max_episode_steps, policy_state,
        wrapper_state, sharding,
    )  # fmt: skip
    return _evaluate(call.program(1, True, False), call.values, jnp.asarray(1.0))  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(program: Program, values: Values, discount: Any) -> Any:
    episodes, once, shown = program.options
    num_envs = program.call.num_envs
    values = values._replace(wrapper_state=freeze(values.wrapper_state))
    mode = AutoresetMode.DISABLED if once else AutoresetMode.SAME_STEP
    steps = Steps(program, values, mode, extras=False)
    start, key = jax.random.split(values.key)
    carry = steps.start(start)
    total = carry.episode_return

    def more(loop: Any) -> Any:
        _, _, _, _, count, _ = loop
        return (count < episodes).any()

    def one(loop: Any) -> Any:
        carry, factor, discounted, key, count, results = loop
        key, own = jax.random.split(key)
        began = carry.began
        carry, transition, _ = steps.take(carry, own)
        factor = factor * discount.astype(total.dtype)
        factor = select(jnp, began, jnp.ones_like(factor), factor)
        reward = factor * transition.reward.astype(total.dtype)
        discounted = summed(jnp, began, discounted, reward)
        ended = transition.terminated | transition.truncated
        latest = Evaluation(
            transition.episode_return,
            discounted,
            transition.episode_length,
            transition.terminated,
            transition.truncated,
        )

        def recorded(old: Any, new: Any) -> Any:
            if once:  # which is faster
                return select(jnp, ended & (count < 1), new, old)
            at = jnp.where(ended, count, episodes)  # rows beyond the last one are dropped
            return old.at[jnp.arange(num_envs), at].set(new, mode="drop")

        results = jax.tree.map(recorded, results, (latest, carry.observation if once else None))
        count = count + ended.astype(count.dtype)
        if shown:
            done = jnp.minimum(count, episodes).sum()
            jax.lax.cond(ended.any(), lambda: jax.debug.callback(_show, done), lambda: None)
        return carry, factor, discounted, key, count, results

    def empty(x: Any) -> Any:
        axes = (num_envs,) if once else (num_envs, episodes)
        return jnp.zeros((*axes, *x.shape[1:]), x.dtype)

    flags = jnp.zeros(num_envs, bool)
    results = Evaluation(total, total, carry.episode_length, flags, flags)
    results = jax.tree.map(empty, (results, carry.observation if once else None))
    count = jnp.zeros(num_envs, jnp.int32)
    loop = carry, jnp.ones_like(total), total, key, count, results
    found, final = jax.lax.while_loop(more, one, loop)[-1]
    if once:
        return Episode(found.returns, found.lengths, found.terminated, final)
    return found
