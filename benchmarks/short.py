"""Rows on calls that are short, each against the same by hand: what is left is what ours adds to every call."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from functional import cart_pole_by_hand
from row import Check, Row, microseconds
from timing import Block, fastest_block, on_one_core

from arrayferry_envs import CartPole, rollout, wrap
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.wrappers import kernels

__all__ = ["short_rows"]

SECTION = "short calls"


def short_rows() -> Iterator[Row]:
    """Calls of some microseconds to a millisecond."""
    yield _rollout_row("a rollout, called again", CartPole())
    normalised = wrap(CartPole(), kernels.NormalizeObservation(), kernels.NormalizeReward())
    yield _rollout_row("a rollout with two wrappers and their state, called again", normalised)
    yield _sb3_row(16, 1.3)
    yield _sb3_row(1_024, 1.3)


def _repeated(function: Any, times: int) -> Block:
    def work() -> None:
        for _ in range(times):
            function()

    return Block(lambda: None, work)


def _rollout_row(what: str, env: Any) -> Row:
    """Ten steps of four environments, against the same inside one's own `jit`."""

    def policy(params: Any, observation: Any, key: Any) -> Any:
        return (observation @ params > 0).astype(int), None

    params, key = jnp.ones(4), jax.random.key(0)
    state = rollout(env, policy, params, key, 10, 4)[0].env_state.wrappers or None

    @jax.jit
    def compiled(params: Any, key: Any, state: Any) -> Any:
        return rollout(env, policy, params, key, 10, 4, wrapper_state=state)

    def ours() -> None:
        jax.block_until_ready(rollout(env, policy, params, key, 10, 4, wrapper_state=state))

    def by_hand() -> None:
        jax.block_until_ready(compiled(params, key, state))

    ways = {"ours": _repeated(ours, 20), "by hand": _repeated(by_hand, 20)}
    times = {name: took / 20 for name, took in fastest_block(ways, 4.0).items()}
    check = Check(times["ours"] / times["by hand"], 1.5, "of the time inside jit")
    return Row(SECTION, what, (check,), "", microseconds(times))


def _sb3_row(count: int, limit: float) -> Row:
    """A step of `SB3VecEnv`, against a compiled step, conversions and a dict for each environment by hand."""
    times, others = on_one_core(_sb3_times, count), _sb3_times(count)
    check = Check(times["ours"] / times["by hand"], limit, "of the time by hand")
    note = (
        f"our step and the rest by hand {times['floor'] / times['by hand']:.2f}, "
        f"on all cores {others['ours'] / others['by hand']:.2f}"
    )
    what = f"a step of SB3VecEnv, {count:,} in JAX, on one core"
    return Row(SECTION, what, (check,), note, microseconds(times))


def _sb3_times(count: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, count) for _ in range(64)]
    ours = SB3VecEnv(CartPole().make_vec(count, xp="jax", autoreset_mode="SameStep"))
    ours.reset()
    inner = CartPole().make_vec(count, xp="jax", autoreset_mode="SameStep")
    inner.reset(seed=0)

    def step(advance: Any, action: Any) -> Any:
        results = map(np.array, advance(action.astype(np.int32)))
        observation, reward, terminated, truncated, final, _ = results
        ended = terminated | truncated
        infos = [{"TimeLimit.truncated": cut} for cut in (truncated & ~terminated).tolist()]
        for index in np.flatnonzero(ended):
            infos[index]["terminal_observation"] = final[index]
        return observation, reward, ended, infos

    def own(action: Any) -> Any:
        *results, infos = inner.step(action)
        return *results, infos["final_obs"], infos["_final_obs"]

    functions = {
        "ours": ours.step,
        "by hand": functools.partial(step, cart_pole_by_hand(count, final=True)),
        "floor": functools.partial(step, own),
    }
    ways = {
        name: _repeated(functools.partial(_each, function, actions), 1)
        for name, function in functions.items()
    }
    return {name: took / len(actions) for name, took in fastest_block(ways, 4.0).items()}


def _each(function: Any, values: list[Any]) -> None:
    for value in values:
        function(value)
