"""Rows on steps with what agents give: actions of each dtype, and of another library than the environments."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import torch
from functional import cart_pole_by_hand
from row import Check, Row, microseconds
from timing import Block, fastest_block, fresh_process, on_one_core
from ways import enter_jax

from arrayferry_envs import CartPole, Pendulum
from arrayferry_gym.vector import ArrayConversion, JaxToTorch

__all__ = ["agent_rows", "kept_rows"]

SECTION = "agents of another dtype or library"
STEPS = 32
DTYPES = {
    "CartPoles": (CartPole(), ("int64", "int32", "uint8")),
    "Pendulums": (Pendulum(), ("float32", "float64", "float16")),
}


def agent_rows() -> Iterator[Row]:
    """Steps with actions of each dtype, and of agents of another library."""
    for name, xp in itertools.product(DTYPES, ("numpy", "torch", "jax")):
        yield _dtype_row(name, xp)
    yield from map(_torch_row, (16, 1_024))
    yield _jax_row(16)


def _times(functions: dict[str, Callable[[Any], Any]], actions: dict[str, list[Any]]) -> Any:
    """Time a call with each action in turn."""

    def block(name: str) -> Block:
        function, given = functions[name], actions[name]

        def work() -> None:
            for action in given:
                function(action)

        return Block(lambda: None, work)

    times = fastest_block({name: block(name) for name in functions}, 3.0)
    return {name: took / len(actions[name]) for name, took in times.items()}


def _dtype_row(name: str, xp: str) -> Row:
    """A step of 16 with actions of other dtypes than that of the space, against those of its dtype."""
    env, dtypes = DTYPES[name]
    rng, space, functions, actions = np.random.default_rng(0), env.action_space, {}, {}
    for dtype in dtypes:
        envs = env.make_vec(16, xp=xp)
        envs.reset(seed=0)
        shape = (16, *space.shape)
        drawn = [rng.integers(0, 2, shape).astype(dtype) for _ in range(STEPS)]
        # an agent in PyTorch has tensors; arrays of JAX have 32 bits, so those of NumPy are given there
        actions[dtype] = [torch.from_numpy(x) for x in drawn] if xp == "torch" else drawn
        functions[dtype] = envs.step
    times = _times(functions, actions)
    own = times[str(space.dtype)]
    checks = tuple(
        Check(times[each] / own, 1.1, f"{each}") for each in dtypes if times[each] != own
    )
    library = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}[xp]
    what = f"a step of 16 {name} in {library}, x the time with {space.dtype}"
    return Row(SECTION, what, checks, "", microseconds(times))


def _torch_row(count: int) -> Row:
    """`JaxToTorch` around CartPoles, against what is quickest by hand: NumPy's arrays into and out of a compiled step."""
    times, others = on_one_core(_torch_times, count), _torch_times(count)
    check = Check(times["ours"] / times["by hand"], 1.15, "x by hand")
    note = (
        f"{times['ours'] / times['device_get']:.2f} x by jax.device_get, "
        f"on all cores {others['ours'] / others['by hand']:.2f} x by hand"
    )
    what = f"JaxToTorch around {count:,} CartPoles, on one core"
    return Row(SECTION, what, (check,), note, microseconds(times))


def _torch_times(count: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    envs = JaxToTorch(CartPole().make_vec(count, xp="jax", autoreset_mode="SameStep"))
    envs.reset(seed=0)
    advance = cart_pole_by_hand(count, final=True)

    def by_hand(action: Any) -> Any:
        results = advance(action.numpy().astype(np.int32))
        return [torch.from_numpy(np.array(x)) for x in results]

    def by_device_get(action: Any) -> Any:
        results = jax.device_get(advance(action.numpy().astype(np.int32)))
        return [torch.from_numpy(x.copy()) for x in results]

    functions = {"ours": envs.step, "by hand": by_hand, "device_get": by_device_get}
    given = [torch.from_numpy(rng.integers(0, 2, count)) for _ in range(STEPS)]
    times: dict[str, float] = _times(functions, dict.fromkeys(functions, given))
    return times


def _jax_row(count: int) -> Row:
    """`ArrayConversion` of Gymnasium's own CartPoles for an agent in JAX, against one compiled identity by hand."""
    rng = np.random.default_rng(0)
    ours = ArrayConversion(gym.make_vec("CartPole-v1", num_envs=count), target_xp="jax")
    ours.reset(seed=0)
    bare = gym.make_vec("CartPole-v1", num_envs=count)
    bare.reset(seed=0)

    def by_hand(action: Any) -> Any:
        *results, infos = bare.step(np.asarray(action))
        return *enter_jax([x.copy() for x in results]), infos

    functions = {"ours": ours.step, "by hand": by_hand}
    given = [jnp.asarray(rng.integers(0, 2, count)) for _ in range(STEPS)]
    times = _times(functions, dict.fromkeys(functions, given))
    check = Check(times["ours"] / times["by hand"], 1.15, "x by hand")
    what = f"ArrayConversion of {count} CartPoles of Gymnasium, for JAX"
    return Row(SECTION, what, (check,), "", microseconds(times))


FIRST = """
import json, time
import jax, jax.numpy as jnp
from arrayferry_envs import CartPole, rollout

misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
start = time.perf_counter()
policy = lambda params, observation, key: ((observation @ params > 0).astype(int), None)
jax.block_until_ready(rollout(CartPole(), policy, jnp.ones(4), jax.random.key(0), 128, 64))
envs = CartPole().make_vec(64, xp="jax", autoreset_mode="SameStep")
envs.reset(seed=0)
jax.block_until_ready(envs.step(jnp.zeros(64, int)))
print(json.dumps([time.perf_counter() - start, len(misses)]))
"""


def kept_rows() -> Iterator[Row]:
    """The first calls of a process whose compiled code JAX has kept."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        first, *others = (fresh_process(FIRST, {**os.environ, **kept}) for _ in range(4))
    took = min(seconds for seconds, _ in others)
    checks = (
        Check(max(misses for _, misses in others), 0, "programs compiled"),
        Check(took / first[0], 0.7, "x the time of the first process"),
    )
    numbers = {"first": round(first[0] * 1e6), "second": round(took * 1e6)}
    what = "a rollout, a reset and a step in a second process, with JAX's cache on disk"
    yield Row("compiled code that is kept", what, checks, f"{took:.2f} s", numbers)
