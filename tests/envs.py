"""Environments, policies and libraries that many tests of adapters use."""

from __future__ import annotations

import array_api_strict
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry_gym.functional import FunctionalEnv
from arrayferry_gym.functional._compiled.evaluation import _evaluate
from arrayferry_gym.functional._compiled.rollout import _rollout

NAMESPACES = {"numpy": np, "torch": torch, "jax": jnp}

LIBRARIES = {
    "numpy": {"xp": "numpy"},
    "torch": {"xp": "torch"},
    "torch itself": {"xp": "torch", "differentiable": True},
    "jax": {"xp": "jax"},
    "strict": {"xp": array_api_strict},
}
"""The options of each library in which functional environments are served."""
library = pytest.mark.parametrize("library", LIBRARIES)
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)


class Takes(gym.Env):
    """Remembers the action, and observes zeros of its library, which its metadata do not tell."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space, library="numpy"):
        self.action_space = space
        self.library = library

    def reset(self, *, seed=None, options=None):
        return NAMESPACES[self.library].zeros(2), {}

    def step(self, action):
        self.taken = action
        return NAMESPACES[self.library].zeros(2), 0.0, False, False, {}


class Bare(FunctionalEnv):
    """Its state begins with zeros, and is observed as it is."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, xp, rng, n, params):
        return xp.zeros((n, *self.observation_space.shape), dtype=xp.float32)

    def observe(self, xp, state, params):
        return state


class Count(Bare):
    """Counts its steps, which are the rewards. It terminates at `end`, and truncates itself at `stop`."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    default_params = {"end": 4.0, "stop": 6.0}

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        count = state + 1
        return count, count, count >= params["end"], count >= params["stop"]

    def observe(self, xp, state, params):
        return state[:, None]

    def info(self, xp, state, params):
        return {"twice": state * 2}


class Sums(FunctionalEnv):
    """The sum of the actions, whose episode ends where it is far from 0. Nothing in it is random."""

    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (), np.float32)
    max_episode_steps = 7

    def reset(self, xp, rng, n, params):
        return xp.zeros((n,), dtype=xp.float32)

    def step(self, xp, rng, state, action, params):
        state = state + xp.astype(action, xp.float32)
        return state, state * 0.5, xp.abs(state) > 1.5

    def observe(self, xp, state, params):
        return xp.stack([state, state * state + 1], axis=1)


def begun(env, seed=1):
    """Reset an environment, and return it."""
    env.reset(seed=seed)
    return env


def still(params, observation, key):
    """Take action 0 in each environment."""
    return jnp.zeros(observation.shape[0], int), None


def lean(params, observation, key):
    """Push a CartPole to the side to which its pole leans."""
    return (observation[:, 2] > 0) * 1, None


def host(value):
    """Convert to NumPy."""
    return af.convert(value, "numpy")


def at_random(params, observation, key):
    """Take one of two actions in each environment."""
    return jax.random.randint(key, observation.shape[:1], 0, 2), None


def make_vec(num_envs, mode=AutoresetMode.NEXT_STEP, **options):
    """Make CartPoles of Gymnasium, in this process."""
    return gym.make_vec(
        "CartPole-v1",
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        **options,
    )


def compilations(call):
    """Return how many rollouts and evaluations are compiled in a call."""

    def count():
        return _rollout._cache_size() + _evaluate._cache_size()

    before = count()
    call()
    return count() - before
