"""Rows on growing batches: from 16 to 65,536 environments of each kind, beside Gymnasium's and gymnax's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from arrayferry_classic import Acrobot, Blackjack, FrozenLake, MountainCar
from row import Check, Row
from timing import Block, fastest_block

import arrayferry as af
from arrayferry_envs import CartPole, Pendulum, rollout

__all__ = ["COUNTS", "KINDS", "SECTION", "scaling_rows"]

SECTION = "environments a second, from 16 to 65,536 at once"
COUNTS = (16, 256, 4_096, 65_536)
GYMNAX = Path(__file__).parent.parent / ".venv-gymnax/bin/python"
SYNC = 256
"""Up to how many of Gymnasium's environments without a vector version of their own are timed."""


class Kind(NamedTuple):
    """An environment, its id in Gymnasium, and the name that gymnax has for it."""

    env: Any
    gymnasium: str
    gymnax: str | None


KINDS = {
    "CartPole": Kind(CartPole(), "CartPole-v1", "CartPole-v1"),
    "Pendulum": Kind(Pendulum(), "Pendulum-v1", "Pendulum-v1"),
    "MountainCar": Kind(MountainCar(), "MountainCar-v0", "MountainCar-v0"),
    "Acrobot": Kind(Acrobot(), "Acrobot-v1", "Acrobot-v1"),
    "FrozenLake": Kind(FrozenLake(), "FrozenLake-v1", None),
    "Blackjack": Kind(Blackjack(), "Blackjack-v1", None),
}


def scaling_rows() -> Iterator[Row]:
    """Growing batches of each kind of environment."""
    compiled = {}
    if GYMNAX.exists():
        done = subprocess.run([GYMNAX, __file__], capture_output=True, text=True, check=True)
        compiled = json.loads(done.stdout.splitlines()[-1])
    for name, kind in KINDS.items():
        for count in COUNTS:
            speeds = _served(kind, count) | compiled.get(f"{name} {count}", {})
            notes = []
            if "gymnasium" in speeds:
                notes.append(
                    f"in NumPy {speeds['numpy'] / speeds['gymnasium']:.1f} x Gymnasium's speed"
                )
            checks = ()
            if "gymnax" in speeds:
                faster = speeds["rollout"] / speeds["gymnax"]
                checks = (Check(faster, 1.0, "x gymnax's speed in rollouts", "at least"),)
            elif "rollout" in speeds:
                notes.append(f"{speeds['rollout'] / 1e6:.1f} million a second in rollouts")
            numbers = {f"{way} a second": round(speed) for way, speed in speeds.items()}
            yield Row(SECTION, f"{count:,} of {name}", checks, ", ".join(notes), numbers)


def _served(kind: Kind, count: int) -> dict[str, float]:
    """Time steps of environments that are served in each library, and of Gymnasium's."""
    steps = 16 if count <= 4_096 else 4
    rng, space = np.random.default_rng(0), kind.env.action_space
    if isinstance(space, gym.spaces.Discrete):
        actions = [rng.integers(0, space.n, count) for _ in range(steps)]
    else:
        shape = (count, *space.shape)
        actions = [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(steps)]
    made = {
        xp: kind.env.make_vec(count, xp=xp, autoreset_mode="SameStep")
        for xp in ("numpy", "torch", "jax")
    }
    own_vector = gym.spec(kind.gymnasium).vector_entry_point is not None
    if own_vector or count <= SYNC:
        mode = "vector_entry_point" if own_vector else "sync"
        made["gymnasium"] = gym.make_vec(kind.gymnasium, count, vectorization_mode=mode)
    blocks = {}
    for name, envs in made.items():
        envs.reset(seed=0)
        given = actions if name == "gymnasium" else [af.convert(x, name) for x in actions]

        def work(envs: Any = envs, given: list[Any] = given, name: str = name) -> None:
            for action in given:
                result = envs.step(action)
                if name == "jax":
                    jax.block_until_ready(result[0])

        blocks[name] = Block(lambda: None, work)
    times = fastest_block(blocks, 1.0)
    return {name: count * steps / took for name, took in times.items()}


def _rollouts() -> dict[str, dict[str, float]]:
    """Time rollouts of ours and gymnax's in JAX. Runs where gymnax is installed."""
    import gymnax

    found = {}
    for name, kind in KINDS.items():
        space = kind.env.action_space
        discrete = isinstance(space, gym.spaces.Discrete)

        def policy(
            _: Any, observation: Any, key: Any, space: Any = space, discrete: bool = discrete
        ) -> Any:
            n = jax.tree.leaves(observation)[0].shape[0]
            if discrete:
                return jax.random.randint(key, (n,), 0, int(space.n)), None
            return jax.random.uniform(key, (n, *space.shape), minval=-1, maxval=1), None

        for count in COUNTS:
            steps = max(8, 32_768 // count)
            blocks = {
                "rollout": lambda kind=kind, steps=steps, count=count: rollout(
                    kind.env, policy, None, jax.random.key(0), steps, count
                )
            }
            if kind.gymnax is not None:
                theirs = _of_gymnax(*gymnax.make(kind.gymnax), policy, steps, count)
                blocks["gymnax"] = lambda theirs=theirs: theirs(jax.random.key(0))
            times = fastest_block(
                {
                    way: Block(lambda: None, lambda run=run: jax.block_until_ready(run()))
                    for way, run in blocks.items()
                },
                1.0,
            )
            found[f"{name} {count}"] = {way: count * steps / took for way, took in times.items()}
    return found


def _of_gymnax(env: Any, params: Any, policy: Any, steps: int, count: int) -> Any:
    @jax.jit
    def run(key: Any) -> Any:
        key, own = jax.random.split(key)
        observation, state = jax.vmap(env.reset, in_axes=(0, None))(
            jax.random.split(own, count), params
        )

        def one(carry: Any, key: Any) -> Any:
            observation, state = carry
            acting, stepping = jax.random.split(key)
            action, _ = policy(None, observation, acting)
            keys = jax.random.split(stepping, count)
            after, state, reward, *ended = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                keys, state, action, params
            )
            return (after, state), (observation, action, jnp.asarray(reward), ended[:2])

        return jax.lax.scan(one, (observation, state), jax.random.split(key, steps))

    return run


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_rollouts()) + "\n")
