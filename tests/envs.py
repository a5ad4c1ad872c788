"""Environments of Gymnasium that many tests of adapters use."""

import copy

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import arrayferry as af
from arrayferry_gym._episodes import RULES, autoreset_mode_of

NAMESPACES = {"numpy": np, "torch": torch, "jax": jnp}

EVERY_MODE = list(RULES)

MODES = pytest.mark.parametrize("mode", EVERY_MODE, ids=lambda mode: mode.name)


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


class Samples(gym.Env):
    """Observes samples of a space, which a seed repeats. It takes actions of the same space, or of another one."""

    def __init__(self, observation_space, action_space=None):
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space or self.observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {"word": "text", "number": 3}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self.observation_space.sample(), 1, np.False_, np.array(False), {"word": "text"}


class Forgetful(gym.vector.VectorWrapper):
    """Leaves out some keys of infos, or says that they are of no environment."""

    def __init__(self, env, left_out=("final_obs", "_final_obs"), denied=False):
        super().__init__(env)
        self.left_out, self.denied = left_out, denied

    def step(self, actions):
        *results, infos = self.env.step(actions)
        infos = {key: value for key, value in infos.items() if key not in self.left_out}
        if self.denied and "_final_obs" in infos:
            infos["_final_obs"] = np.zeros(self.num_envs, bool)
        return *results, infos


def begun(env, seed=1):
    """Reset an environment, and return it."""
    env.reset(seed=seed)
    return env


def host(value):
    """Convert to NumPy."""
    return af.convert(value, "numpy")


def make_vec(num_envs, mode=AutoresetMode.NEXT_STEP, **options):
    """Make CartPoles of Gymnasium, in this process."""
    kwargs = {"autoreset_mode": mode}
    return gym.make_vec("CartPole-v1", num_envs, "sync", vector_kwargs=kwargs, **options)


def in_mode(makes, mode):
    """Make a batch of single environments of a mode, which may be a name."""
    return SyncVectorEnv(makes, autoreset_mode=autoreset_mode_of(mode))
