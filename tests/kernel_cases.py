"""Environments, actions and statistics with which kernels are tested."""

import gymnasium as gym
import jax
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym._episodes import RULES

LIBRARIES = ("numpy", "torch", "jax")


ALL_LIBRARIES = (*LIBRARIES, "array_api_strict")


MODES = tuple(mode.name for mode in RULES)


class Steps(gym.Env):
    """Observes the sum of the actions of its episodes, which ends at a length that its number decides."""

    action_space = spaces.Box(-2.0, 2.0, (), np.float32)

    def __init__(self, number=0, observation_space=None, truncates=False):
        self.observation_space = observation_space or spaces.Box(-40.0, 40.0, (2,), np.float32)
        self.number, self.truncates = number, truncates

    def _observed(self):
        return np.float32([self.sum, self.number + 0.5 * self.count])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sum, self.count = 0.25 * self.number, 0
        return self._observed(), {}

    def step(self, action):
        self.sum += float(action)
        self.count += 1
        over = self.count >= 3 + self.number
        ended = (False, over) if self.truncates else (over, False)
        return self._observed(), float(action), *ended, {}


def actions(count, n=3):
    return np.random.default_rng(5).uniform(-1, 1, (count, n)).astype(np.float32)


def flat(value):
    """Return all numbers of an observation in NumPy, by the order of names."""
    leaves = jax.tree.leaves(af.convert(value, "numpy"))
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in leaves])


RIGHT = {"count": 1, "mean": [0.0] * 2, "var": [1.0] * 2}


WRONG = [
    {"nonsense": 1},
    {"obs_rms": RIGHT, "nonsense": 1},
    3,
    None,
    *[{"obs_rms": {**RIGHT, "count": count}} for count in (-1, 1.5, float("inf"))],
    *[{"obs_rms": {**RIGHT, "mean": mean}} for mean in ([0.0], "ab")],
    {"return_rms": {**RIGHT, "mean": [0.0]}},
    *[{"obs_rms": {**RIGHT, "var": [var, 1.0]}} for var in (-1.0, float("nan"))],
    {"obs_rms": [1, 2]},
]
