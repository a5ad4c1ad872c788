"""Rows on environments that belong to no library: against hand-written ones, and against gymnax."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import array_api_compat.numpy
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from row import Check, Row, microseconds
from timing import Block, fastest_block

from arrayferry_envs import CartPole, rollout
from arrayferry_gym import make_rng

__all__ = ["cart_pole_by_hand", "cart_pole_step", "functional_rows"]

COUNTS = (16, 256, 1_024, 4_096, 65_536)
SECTION = "functional environments: CartPole"
NUMPY_GOALS = {16: 1.0, 1_024: 1.8, 65_536: 4.0}
JAX_GOALS = {16: 0.9, 256: 1.0, 1_024: 1.0, 4_096: 1.0, 65_536: 1.0}
GYMNAX = Path(__file__).parent.parent / ".venv-gymnax/bin/python"


def functional_rows() -> list[Row]:
    """Environments that belong to no library."""
    rows = [row for count in COUNTS for row in (_host_row(count), _jax_row(count))]
    return [_one_row(), *rows, *_gymnax_rows(), *map(_generator_row, (16, 1_024))]


def _loop(step: Any, actions: list[Any], finish: Any = None) -> Block:
    """Take a step with each action in turn."""

    def work() -> None:
        for action in actions:
            result = step(action)
            if finish is not None:
                finish(result)

    return Block(lambda: None, work)


def _one_row() -> Row:
    """A step of one environment in NumPy, in Gymnasium's own, and in nothing but the methods of ours."""
    blocks = {}
    steps = 150
    for name, id_ in (("gymnasium", "CartPole-v1"), ("numpy", "arrayferry/CartPole-v0")):
        env = gym.make(id_)
        (position, speed, angle, spin), _ = env.reset(seed=1)
        actions = []
        for _ in range(steps):  # none of which ends the episode
            actions.append(int(3 * angle + spin + 0.1 * position + 0.3 * speed > 0))
            (position, speed, angle, spin), _, terminated, truncated, _ = env.step(actions[-1])
            assert not terminated
            assert not truncated
        loop = _loop(env.step, actions)
        blocks[name] = Block(functools.partial(env.reset, seed=1), loop.work)
    blocks["methods"] = _methods(1, [np.ones(1, np.int64)] * steps)
    times = {name: took / steps for name, took in fastest_block(blocks).items()}
    check = Check(times["numpy"] / times["gymnasium"], 3.2, "x Gymnasium's time in NumPy")
    note = f"its methods alone {times['methods'] / times['gymnasium']:.2f}"
    return Row(SECTION, "a step of one", (check,), note, microseconds(times))


def _methods(count: int, actions: list[Any]) -> Block:
    """Nothing but the methods of our CartPole in NumPy."""
    cart_pole: Any = CartPole()
    xp, params = array_api_compat.numpy, cart_pole.default_params
    start = cart_pole.reset(xp, make_rng("numpy", 1), count, params)

    def work() -> None:
        state = start
        for action in actions:
            state, _, _ = cart_pole.step(xp, None, state, action, params)
            cart_pole.observe(xp, state, params)

    return Block(lambda: None, work)


def _repeats(count: int) -> int:
    return 64 if count <= 4_096 else 8


def _host_row(count: int) -> Row:
    """A step in NumPy and in PyTorch, and in Gymnasium's hand-written vector environment."""
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, count) for _ in range(_repeats(count))]
    tensors = [torch.from_numpy(action) for action in actions]
    theirs: Any = CartPoleVectorEnv(count)
    ours = gym.make_vec("arrayferry/CartPole-v0", num_envs=count)
    in_torch = gym.make_vec("arrayferry/CartPole-v0", num_envs=count, xp="torch")
    for env in (theirs, ours, in_torch):
        env.reset(seed=0)
    times = fastest_block(
        {
            "gymnasium": _loop(theirs.step, actions),
            "numpy": _loop(ours.step, actions),
            "torch": _loop(in_torch.step, tensors),
            "methods": _methods(count, actions),
        }
    )
    times = {name: took / len(actions) for name, took in times.items()}
    faster = times["gymnasium"] / times["numpy"]
    share = times["numpy"] / times["torch"]
    checks = [Check(share, 0.8, "of NumPy's speed in PyTorch", "at least")]
    note = f"its methods alone {times['gymnasium'] / times['methods']:.2f}"
    if count in NUMPY_GOALS:
        checks.insert(
            0, Check(faster, NUMPY_GOALS[count], "of Gymnasium's speed in NumPy", "at least")
        )
    else:
        note = f"{faster:.2f} of Gymnasium's speed in NumPy, {note}"
    return Row(SECTION, f"a step of {count:,}", tuple(checks), note, microseconds(times))


def cart_pole_step(count: int, *, final: bool = False) -> tuple[Any, list[Any]]:
    """A step as it is usually written, for one environment, with a key for each, and `vmap`; and what it starts from.

    Args:
        count: the number of environments.
        final: whether it returns the last observations too, and where they are.
    """

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def one(key: Any, state: Any, elapsed: Any, action: Any) -> Any:
        position, velocity, angle, spin = state
        force = jnp.where(action == 1, 10.0, -10.0)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + 0.05 * spin**2 * sine) / 1.1
        spin_change = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        acceleration = push - 0.05 * spin_change * cosine / 1.1
        state = jnp.stack(
            [
                position + 0.02 * velocity,
                velocity + 0.02 * acceleration,
                angle + 0.02 * spin,
                spin + 0.02 * spin_change,
            ]
        )
        elapsed = elapsed + 1
        fallen = (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 0.20943951)
        cut = elapsed >= 500
        done = fallen | cut
        last = (state, done) if final else ()
        state = jnp.where(done, reset(key), state)
        return state, jnp.where(done, 0, elapsed), jnp.float32(1.0), fallen, cut, *last

    def step(key: Any, state: Any, elapsed: Any, action: Any) -> Any:
        key, own = jax.random.split(key)
        return key, *jax.vmap(one)(jax.random.split(own, count), state, elapsed, action)

    key = jax.random.key(0)
    return step, [key, jax.vmap(reset)(jax.random.split(key, count)), jnp.zeros(count, jnp.int32)]


def cart_pole_by_hand(count: int, *, final: bool = False) -> Any:
    """A function of actions that takes the compiled step."""
    step, held = cart_pole_step(count, final=final)
    step = jax.jit(step)

    def advance(action: Any) -> Any:
        held[0], held[1], held[2], *rest = step(*held, action)
        return held[1], *rest

    return advance


def _jax_row(count: int) -> Row:
    """A step in JAX, and one written by hand. Each waits for its results."""
    rng = np.random.default_rng(0)
    actions = [jnp.asarray(rng.integers(0, 2, count)) for _ in range(_repeats(count))]
    ours = gym.make_vec(
        "arrayferry/CartPole-v0", num_envs=count, xp="jax", autoreset_mode="SameStep"
    )
    ours.reset(seed=0)
    times = fastest_block(
        {
            "by hand": _loop(cart_pole_by_hand(count), actions, jax.block_until_ready),
            "floor": _loop(cart_pole_by_hand(count, final=True), actions, jax.block_until_ready),
            "jax": _loop(ours.step, actions, jax.block_until_ready),
        },
        3.0,
    )
    times = {name: took / len(actions) for name, took in times.items()}
    faster = times["by hand"] / times["jax"]
    check = Check(faster, JAX_GOALS[count], "of the speed by hand in JAX", "at least")
    note = f"by hand with last observations {times['by hand'] / times['floor']:.2f}"
    return Row(SECTION, f"a step of {count:,} in JAX", (check,), note, microseconds(times))


def _gymnax_rows() -> list[Row]:
    """Rollouts in JAX, and those of gymnax, which needs an environment of its own."""
    if not GYMNAX.exists():
        return [
            Row(SECTION, "rollouts against gymnax", (), "not measured: run make downstream first")
        ]
    done = subprocess.run([GYMNAX, __file__], capture_output=True, text=True, check=True)
    rows = []
    for count, times in json.loads(done.stdout.splitlines()[-1]).items():
        faster = times["gymnax"] / times["ours"]
        goal = 1.5 if int(count) >= 1_024 else 1.0
        check = Check(faster, goal, "of gymnax's speed", "at least")
        rows.append(Row(SECTION, f"a rollout of {int(count):,}", (check,), "", microseconds(times)))
    return rows


def _at_random(_: Any, observation: Any, key: Any) -> Any:
    return jax.random.randint(key, observation.shape[:1], 0, 2), None


def _generator_row(count: int) -> Row:
    """Rollouts with keys of each of JAX's older generators."""
    steps, env = 8_192 // min(count, 512), CartPole()

    def block(key: Any) -> Block:
        return Block(
            lambda: None,
            lambda: jax.block_until_ready(rollout(env, _at_random, None, key, steps, count)),
        )

    names = ("threefry2x32", "rbg", "unsafe_rbg")
    times = fastest_block({name: block(jax.random.key(0, impl=name)) for name in names}, 3.0)
    default = times["threefry2x32"]
    note = ", ".join(f"{name} {times[name] / default:.2f}" for name in names[1:])
    what = f"a rollout of {count:,} by other generators"
    return Row(SECTION, what, (), f"{note} x the time of threefry2x32", microseconds(times))


def _rollouts() -> dict[int, dict[str, float]]:
    """Time rollouts of both. Runs where gymnax is installed."""
    import gymnax

    env, params = gymnax.make("CartPole-v1")
    found = {}

    policy = _at_random
    for count, steps in ((16, 256), (1_024, 128)):

        @jax.jit
        def theirs(key: Any, count: int = count, steps: int = steps) -> Any:
            key, own = jax.random.split(key)
            keys = jax.random.split(own, count)
            observation, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)

            def one(carry: Any, key: Any) -> Any:
                observation, state = carry
                acting, stepping = jax.random.split(key)
                action, _ = policy(None, observation, acting)
                keys = jax.random.split(stepping, count)
                after, state, reward, *ended = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                    keys, state, action, params
                )
                return (after, state), (observation, action, reward, ended)

            return jax.lax.scan(one, (observation, state), jax.random.split(key, steps))

        key, ours = jax.random.key(0), CartPole()

        def run_theirs(theirs: Any = theirs, key: Any = key) -> None:
            jax.block_until_ready(theirs(key))

        def run_ours(
            key: Any = key, ours: Any = ours, steps: int = steps, count: int = count
        ) -> None:
            jax.block_until_ready(rollout(ours, policy, None, key, steps, count))

        found[count] = fastest_block(
            {"gymnax": Block(lambda: None, run_theirs), "ours": Block(lambda: None, run_ours)}, 3.0
        )
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_rollouts()) + "\n")
