"""Rows on wrappers: against Gymnasium's in NumPy, and against code by hand in PyTorch and inside a rollout."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any

import gymnasium as gym
import gymnasium.wrappers.vector
import jax
import jax.numpy as jnp
import numpy as np
import torch
from functional import cart_pole_by_hand, cart_pole_step
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from row import Check, Row, microseconds
from timing import Block, Statement, fastest, fastest_block, on_one_core

import arrayferry_gym.wrappers as ours
from arrayferry_envs import CartPole, Functions, rollout, wrap
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers import vector as ours_vector

__all__ = ["wrapper_rows"]

SECTION = "wrappers"
COUNT = 1_024


def wrapper_rows() -> list[Row]:
    """Wrappers."""
    return [
        *_vector_rows(), _torch_row(), *_single_rows(), *map(_rollout_row, (64, COUNT)),
        *map(_four_row, (16, COUNT)),
    ]  # fmt: skip


class Still(VectorEnv):
    """Environments that return the same arrays at each step, so that only wrappers take time."""

    def __init__(self, make: Any = np.asarray, count: int = COUNT) -> None:
        rng = np.random.default_rng(0)
        self.num_envs = count
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Box(-9.0, 9.0, (4,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self.observation = make(rng.normal(size=(count, 4)).astype(np.float32))
        false = make(np.zeros(count, bool))
        self.result = self.observation, make(rng.normal(size=count)), false, false

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Return the observations."""
        return self.observation, {}

    def step(self, actions: Any) -> Any:
        """Return the same results."""
        return *self.result, {}


WRAPPERS: dict[str, dict[str, Any]] = {
    "NormalizeObservation": {},
    "NormalizeReward": {},
    "RecordEpisodeStatistics": {},
    "RescaleObservation": {"min_obs": np.float32(-1), "max_obs": np.float32(1)},
    "ClipReward": {"min_reward": -1.0, "max_reward": 1.0},
}


def _vector_rows() -> list[Row]:
    """A step of many environments in NumPy."""
    rows = []
    for name, options in WRAPPERS.items():
        made = {
            "ours": getattr(ours_vector, name)(Still(), **options),
            "gymnasium": getattr(gym.wrappers.vector, name)(Still(), **options),
        }
        for env in made.values():
            env.reset()
        times = fastest(
            {way: Statement("step(None)", {"step": env.step}) for way, env in made.items()}, 1.0
        )
        limit = 1.0 if name == "NormalizeObservation" else 1.5
        check = Check(times["ours"] / times["gymnasium"], limit, "x Gymnasium's")
        rows.append(Row(SECTION, f"{name} of {COUNT:,}", (check,), "", microseconds(times)))
    return rows


def _torch_row() -> Row:
    """NormalizeObservation of many environments in PyTorch, and by hand."""
    env = Still(torch.asarray)
    wrapped = ours_vector.NormalizeObservation(env)
    wrapped.reset()
    held = {"mean": torch.zeros(4), "var": torch.ones(4), "count": 1e-4}

    def by_hand(_: Any) -> Any:
        x, *others = env.step(None)
        mean, var, count = held["mean"], held["var"], held["count"]
        own_var, own_mean = torch.var_mean(x, dim=0, correction=0)
        n = x.shape[0]
        total = count + n
        delta = own_mean - mean
        mean = mean + delta * (n / total)
        spread = var * count + own_var * n + delta * delta * (count * n / total)
        held["mean"], held["var"], held["count"] = mean, spread / total, total
        return (x - mean) / torch.sqrt(held["var"] + 1e-8), *others

    times = fastest(
        {
            "ours": Statement("step(None)", {"step": wrapped.step}),
            "by hand": Statement("step(None)", {"step": by_hand}),
        },
        1.0,
    )
    check = Check(times["ours"] / times["by hand"], 1.5, "x by hand")
    what = f"NormalizeObservation of {COUNT:,} in PyTorch"
    return Row(SECTION, what, (check,), "", microseconds(times))


SINGLE = {**WRAPPERS, "TimeAwareObservation": {}, "FrameStackObservation": {"stack_size": 4}}


def _single_rows() -> list[Row]:
    """An episode of one environment."""
    rows = []
    for name, options in SINGLE.items():
        if name == "RescaleObservation":
            bound = np.float32([1, np.inf, 1, np.inf])
            options = {"min_obs": -bound, "max_obs": bound}
        made = {
            "ours": getattr(ours, name)(gym.make("CartPole-v1"), **options),
            "gymnasium": getattr(gym.wrappers, name)(gym.make("CartPole-v1"), **options),
        }

        def block(env: Any) -> Block:
            def work() -> None:
                for action in (0, 1) * 10:
                    env.step(action)

            return Block(lambda: env.reset(seed=0), work)

        times = fastest_block({way: block(env) for way, env in made.items()}, 0.7)
        times = {way: took / 20 for way, took in times.items()}
        check = Check(times["ours"] / times["gymnasium"], 1.5, "x Gymnasium's")
        rows.append(
            Row(SECTION, f"{name} around one environment", (check,), "", microseconds(times))
        )
    return rows


def merged(stats: Any, x: Any) -> Any:
    """Count a batch in a running mean and variance."""
    mean, var, size = stats
    own, n = x.mean(axis=0), x.shape[0]
    delta, total = own - mean, size + n
    spread = var * size + x.var(axis=0) * n + delta**2 * size * n / total
    return mean + delta * n / total, spread / total, total


def _rollout_row(count: int) -> Row:
    """A rollout with normalised observations and rewards and the statistics of episodes, and one by hand."""

    def policy(_: Any, observation: Any, key: Any) -> Any:
        return (observation[:, 2] + 0.1 * jax.random.normal(key, (count,)) > 0).astype(int), None

    env = wrap(
        CartPole(),
        kernels.RecordEpisodeStatistics(),
        kernels.NormalizeObservation(),
        kernels.NormalizeReward(),
    )
    functions = Functions(CartPole())

    def merged_rows(stats: Any, x: Any, rows: Any) -> Any:
        mean, var, size = stats
        n = rows.sum()
        own = jnp.where(rows[:, None], x, 0).sum(axis=0) / jnp.maximum(n, 1)
        apart = jnp.where(rows[:, None], x - own, 0)
        delta, total = own - mean, size + n
        spread = var * size + (apart * apart).sum(axis=0) + delta**2 * size * n / total
        return mean + delta * n / total, spread / total, total

    @functools.partial(jax.jit, static_argnums=1)
    def by_hand(key: Any, whole: bool) -> Any:
        start, key = jax.random.split(key)
        env_state, observation = functions.reset(start, count)
        stats = merged((jnp.zeros(4), jnp.ones(4), 1e-4), observation)
        shown = (observation - stats[0]) / jnp.sqrt(stats[1] + 1e-8)
        returns = jnp.zeros(()), jnp.ones(()), 1e-4
        zeros = jnp.zeros(count)
        lengths = jnp.zeros(count, int)

        def one(carry: Any, key: Any) -> Any:
            env_state, shown, stats, returns, discounted, total, length = carry
            acting, stepping = jax.random.split(key)
            action, _ = policy(None, shown, acting)
            env_state, outcome = functions.step(stepping, env_state, action)
            ended = outcome.terminated | outcome.truncated
            if whole:  # each observation counts once, also the last of an episode
                stats = merged(stats, outcome.final_observation)
                final = (outcome.final_observation - stats[0]) / jnp.sqrt(stats[1] + 1e-8)
                stats = merged_rows(stats, outcome.observation, ended)
                first = (outcome.observation - stats[0]) / jnp.sqrt(stats[1] + 1e-8)
                after = jnp.where(ended[:, None], first, final)
            else:
                stats = merged(stats, outcome.observation)
                after = (outcome.observation - stats[0]) / jnp.sqrt(stats[1] + 1e-8)
                final = (outcome.final_observation - stats[0]) / jnp.sqrt(stats[1] + 1e-8)
            discounted = discounted * 0.99 * ~outcome.terminated + outcome.reward
            returns = merged(returns, discounted)
            reward = outcome.reward / jnp.sqrt(returns[1] + 1e-8)
            total, length = total + outcome.reward, length + 1
            seen = (
                shown, action, reward, outcome.terminated, outcome.truncated, final,
                jnp.where(ended, total, 0), jnp.where(ended, length, 0),
            )  # fmt: skip
            discounted, total = (jnp.where(ended, 0, x) for x in (discounted, total))
            length = jnp.where(ended, 0, length)
            return (env_state, after, stats, returns, discounted, total, length), seen

        carry = env_state, shown, stats, returns, zeros, zeros, lengths
        return jax.lax.scan(one, carry, jax.random.split(key, 128))

    key = jax.random.key(0)
    ours = jax.jit(lambda key: rollout(env, policy, None, key, 128, count, collect="info"))
    bare = jax.jit(lambda key: rollout(CartPole(), policy, None, key, 128, count))
    ways = {
        "ours": lambda: ours(key),
        "by hand": lambda: by_hand(key, True),
        "by hand, without final observations": lambda: by_hand(key, False),
        "bare": lambda: bare(key),
    }
    blocks = {
        way: Block(lambda: None, lambda run=run: jax.block_until_ready(run()))
        for way, run in ways.items()
    }
    times = fastest_block(blocks, 3.0)
    check = Check(times["ours"] / times["by hand"], 1.2, "x by hand")
    less = times["ours"] / times["by hand, without final observations"]
    note = f"{less:.2f} by hand if final observations do not count, {times['ours'] / times['bare']:.2f} without wrappers"
    return Row(
        SECTION, f"three wrappers in a rollout of {count:,}", (check,), note, microseconds(times)
    )


FOUR = {name: options for name, options in WRAPPERS.items() if name != "RescaleObservation"}


def _four_row(count: int) -> Row:
    """A step of environments in JAX with four wrappers: inside the compiled step, around it, and by hand."""
    times, others = on_one_core(_four_times, count), _four_times(count)
    check = Check(times["inside"] / times["alone"], 1.3, "of a step without")
    by_hand = times["by hand"] / times["alone by hand"]
    note = (
        f"by hand {by_hand:.2f}, around the environment {times['around'] / times['alone']:.2f}, "
        f"on all cores {others['inside'] / others['alone']:.2f}"
    )
    what = f"four wrappers of {count:,} in JAX, on one core"
    return Row(SECTION, what, (check,), note, microseconds(times))


def _four_times(count: int) -> dict[str, float]:
    alone = CartPole().make_vec(count, xp="jax")
    parts = [getattr(kernels, name)(**options) for name, options in FOUR.items()]
    inside = wrap(CartPole(), *parts).make_vec(count, xp="jax")
    around = CartPole().make_vec(count, xp="jax")
    for name, options in FOUR.items():
        around = getattr(ours_vector, name)(around, **options)
    for env in (alone, inside, around):
        env.reset(seed=0)
    ways = {
        "alone": alone.step, "inside": inside.step, "around": around.step,
        "alone by hand": cart_pole_by_hand(count), "by hand": _four_by_hand(count),
    }  # fmt: skip
    drawn = jax.random.bernoulli(jax.random.key(0), shape=(64, count)).astype(int)
    statements = {
        way: Statement("block(step(next(actions)))", {
            "block": jax.block_until_ready, "step": step, "actions": itertools.cycle([*drawn]),
        })
        for way, step in ways.items()
    }  # fmt: skip
    return fastest(statements, 3.0)


def _four_by_hand(count: int) -> Any:
    """The same four in one compiled step, whose ends of episodes are read and recorded."""
    step, start = cart_pole_step(count)
    zeros, moments = jnp.zeros(count), (jnp.zeros(()), jnp.ones(()), jnp.float32(1e-4))
    of_observations = jnp.zeros(4), jnp.ones(4), jnp.float32(1e-4)
    held: Any = [start, (of_observations, moments, zeros, zeros, jnp.zeros(count, int))]
    queues: Any = [collections.deque(maxlen=100) for _ in range(2)]

    @jax.jit
    def compiled(env: Any, more: Any, action: Any) -> Any:
        observations, returns, discounted, total, length = more
        *env, reward, fallen, cut = step(*env, action)
        reward = jnp.broadcast_to(reward, (count,))
        ended = fallen | cut
        observations = merged(observations, env[1])
        shown = (env[1] - observations[0]) / jnp.sqrt(observations[1] + 1e-8)
        discounted = discounted * 0.99 * ~fallen + reward
        returns = merged(returns, discounted)
        scaled = jnp.clip(reward / jnp.sqrt(returns[1] + 1e-8), -1.0, 1.0)
        total, length = total + reward, length + 1
        told = ended, jnp.where(ended, total, 0), jnp.where(ended, length, 0)
        discounted, total, length = (jnp.where(ended, 0, x) for x in (discounted, total, length))
        more = observations, returns, discounted, total, length
        return env, more, (shown, scaled, fallen, cut), told

    def advance(action: Any) -> Any:
        held[0], held[1], results, (ended, *told) = compiled(*held, action)
        rows = np.asarray(ended)
        if rows.any():
            for queue, values in zip(queues, told, strict=True):
                queue.extend(np.asarray(values)[rows])
        return results

    return advance
