"""Functional environments, policies, and the libraries in which they are served."""

from typing import Any, NamedTuple

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import torch
from boxes import Plain
from gymnasium import spaces

from arrayferry_envs import CartPole, FunctionalEnv
from arrayferry_envs._compiled.evaluation import _evaluate
from arrayferry_envs._compiled.rollout import _rollout

LIBRARIES = {
    "numpy": {"xp": "numpy"},
    "torch": {"xp": "torch"},
    "torch itself": {"xp": "torch", "differentiable": True},
    "jax": {"xp": "jax"},
    "strict": {"xp": array_api_strict},
}
"""The options of each library in which functional environments are served."""


class Bare(FunctionalEnv):
    """Its state begins with zeros, and is observed as it is."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, xp, rng, n, params):
        return xp.zeros((n, *self.observation_space.shape), dtype=xp.float32)

    def observe(self, xp, state, params):
        return state


class Scalar(Bare):
    """Its state is a number in each environment, which begins with zero."""

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32)

    def observe(self, xp, state, params):
        return state[:, None]


class Count(Scalar):
    """Counts its steps, which are the rewards. It terminates at `end`, and truncates itself at `stop`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    default_params = {"end": 4.0, "stop": 6.0}

    def step(self, xp, rng, state, action, params):
        count = state + 1
        return count, count, count >= params["end"], count >= params["stop"]

    def info(self, xp, state, params):
        return {"twice": state * 2}


class Sums(Scalar):
    """The sum of the actions, whose episode ends where it is far from 0. Nothing in it is random."""

    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (), np.float32)
    max_episode_steps = 7

    def step(self, xp, rng, state, action, params):
        state = state + xp.astype(action, xp.float32)
        return state, state * 0.5, xp.abs(state) > 1.5

    def observe(self, xp, state, params):
        return xp.stack([state, state * state + 1], axis=1)


def with_two_rewards(env):
    """Return a class of environments with a second reward, which is the first one with the other sign."""

    class TwoRewards(env):
        reward_shape = (2,)

        def step(self, xp, rng, state, action, params):
            state, reward, *flags = super().step(xp, rng, state, action, params)
            return state, xp.stack([reward, -reward], axis=1), *flags

    return TwoRewards


class Parts(FunctionalEnv):
    """Actions and observations of several parts. The reward is the sum of two of them."""

    observation_space = spaces.Dict(
        a=spaces.Box(-9, 9, (2,), np.float64),
        b=spaces.Tuple((spaces.Discrete(9), spaces.MultiBinary(2))),
    )
    action_space = spaces.Dict(
        x=spaces.Box(-1, 1, (2,), np.float32), y=spaces.MultiDiscrete([2, 3]), z=spaces.Discrete(3)
    )

    def reset(self, xp, rng, n, params):
        return {"a": xp.zeros((n, 2), dtype=xp.float32), "k": rng.integers((n,), 0, 9)}

    def step(self, xp, rng, state, action, params):
        x, y, z = (xp.astype(action[key], xp.float32) for key in "xyz")
        assert x.shape == y.shape == (*z.shape, 2) == state["a"].shape
        return {**state, "a": state["a"] + x + y}, x[:, 0] + z, False

    def observe(self, xp, state, params):
        return {"a": state["a"], "b": (state["k"], xp.zeros(state["a"].shape, dtype=xp.bool))}


class Drawn(FunctionalEnv):
    """An episode has as many steps as its parameter says, which is drawn at its start. JAX does not know its states."""

    observation_space = spaces.Dict(
        {"end": spaces.Box(0, 99, (), np.float32), "count": spaces.Box(0, 99, (), np.float32)}
    )
    action_space = spaces.Discrete(2)
    default_params = {"end": 0.0, "most": 6.0, "least": 2, "label": "kept"}

    def sample_params(self, xp, rng, n, params):
        assert params["label"] == "kept"
        return {**params, "end": xp.floor(rng.uniform((n,), params["least"], params["most"]))}

    def reset(self, xp, rng, n, params):
        assert params["end"].shape == (n,)
        return Plain(xp.zeros((n,), dtype=xp.float32))

    def step(self, xp, rng, state, action, params):
        count = state.x + 1
        return Plain(count), params["end"], count >= params["end"]

    def observe(self, xp, state, params):
        return {"count": state.x, "end": params["end"]}

    def info(self, xp, state, params):
        return {"end": params["end"] + 0}

    def render(self, state, index):
        return np.full((2, 2, 3), state.x[index], np.uint8)


class Masked(Scalar):
    """Allows one action, which is another one after each step, and rewards it. Another one ends the episode."""

    observation_space = spaces.Dict(
        {"count": spaces.Box(0, 9, (1,), np.float32), "action_mask": spaces.MultiBinary(3)}
    )
    action_space = spaces.Discrete(3)
    max_episode_steps = 4

    def step(self, xp, rng, state, action, params):
        allowed = action == xp.astype(state % 3, action.dtype)
        return state + 1, xp.astype(allowed, xp.float32), ~allowed

    def observe(self, xp, state, params):
        mask = state[:, None] % 3 == xp.arange(3, dtype=xp.float32)[None, :]
        return {"count": state[:, None], "action_mask": xp.astype(mask, xp.int8)}


class MaskedCounts(Masked):
    """Tells its count in infos, too."""

    def info(self, xp, state, params):
        return {"count": state}


class CellsParams(NamedTuple):
    """Whether moves fail by chance, whether actions are swapped, and the reward in each cell."""

    slippery: bool = True
    swapped: bool = False
    rewards: Any = np.array([0, 0, 0, 0, 1], np.float32)


class Cells(FunctionalEnv):
    """A row of numbered cells. The episode ends in the last one."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)
    max_episode_steps = 20
    default_params = CellsParams()

    def reset(self, xp, rng, n, params):
        return rng.integers((n,), 0, 2)

    def step(self, xp, rng, state, action, params):
        move = 2 * xp.astype(action, xp.int32) - 1
        if params.swapped:
            move = -move
        if params.slippery:
            move = xp.where(rng.uniform(state.shape) < 0.8, move, xp.zeros_like(move))
        state = xp.clip(state + move, 0, 4)
        return state, xp.take(params.rewards, state, axis=0), state == 4

    def observe(self, xp, state, params):
        return state


class InJax(CartPole):
    """Draws and computes with functions that only JAX has."""

    library = "jax"

    def reset(self, xp, rng, n, params):
        state = super().reset(xp, rng, n, params)
        angles = jax.vmap(jax.random.uniform)(jax.random.split(rng.key(), n))
        return state._replace(angle=angles / 100)

    def step(self, xp, rng, state, action, params):
        assert xp is jnp
        return jax.vmap(lambda s, a: CartPole().step(xp, rng, s, a, params))(state, action)


class InTorch(CartPole):
    library = "torch"

    def observe(self, xp, state, params):
        assert all(type(x) is torch.Tensor for x in state)
        return super().observe(xp, state, params)


def still(params, observation, key):
    """Take action 0 in each environment."""
    return jnp.zeros(observation.shape[0], int), None


def lean(params, observation, key):
    """Push a CartPole to the side to which its pole leans."""
    return jnp.astype(observation[:, 2] > 0, int) if hasattr(observation, "at") else (
        observation[:, 2] > 0
    ) * 1, None


def at_random(params, observation, key):
    """Take one of two actions in each environment."""
    return jax.random.randint(key, observation.shape[:1], 0, 2), None


def compilations(call):
    """Return how many rollouts and evaluations are compiled in a call."""

    def count():
        return _rollout._cache_size() + _evaluate._cache_size()

    before = count()
    call()
    return count() - before
