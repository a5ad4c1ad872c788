"""Writes what later versions must read, into this folder: `python tests/pickles/write.py`.

Files of a version that is released stay as they are. `test_pickles.py` reads them.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import arrayferry as af
from arrayferry_cluster import Trajectory
from arrayferry_envs import CartPole, evaluate, repeat_action, wrap
from arrayferry_gym import NumpyToTorch
from arrayferry_gym.wrappers import NormalizeObservation, kernels

FOLDER = Path(__file__).parent


def balance(params: Any, observation: Any, key: Any) -> tuple[Any, None]:
    """Push the cart to the side to which the pole leans."""
    return (observation[:, 2] > 0) * 1, None


def actions(count: int) -> Any:
    """Return actions of two CartPoles."""
    return np.arange(2 * count).reshape(count, 2) // 3 % 2


def normalised() -> Any:
    """Return a CartPole with statistics, in NumPy, after a few steps."""
    chain = kernels.RecordEpisodeStatistics(), kernels.NormalizeObservation()
    envs = wrap(CartPole(), *chain).make_vec(2)
    envs.reset(seed=1)
    for action in actions(5):
        envs.step(action)
    return envs


def evaluation() -> Any:
    """Return the results of an evaluation, in NumPy."""
    return evaluate(CartPole(), balance, num_envs=2, policy_xp="numpy", max_episode_steps=20)


def trajectories() -> Trajectory:
    """Return steps with the place of each."""
    fields = range(len(Trajectory._fields))
    return Trajectory(*(np.full((2, 1), number, np.float32) for number in fields))


VALUES = {
    "converter": lambda: af.converter("torch", copy=True),
    "layout": lambda: af.flatten({"a": np.ones(2), "b": [1, np.ones(3)]})[1],
    "environment": lambda: wrap(repeat_action(CartPole(), 2), kernels.ClipReward(0, 1)),
    "served": normalised,
    "state": lambda: normalised().state_dict(),
    "adapter": lambda: NumpyToTorch(gym.make("CartPole-v1")),
    "wrapper": lambda: NormalizeObservation(gym.make("CartPole-v1")),
    "spaces": lambda: NumpyToTorch(gym.make("CartPole-v1")).observation_space,
    "evaluation": evaluation,
    "trajectories": trajectories,
}

if __name__ == "__main__":
    for name, make in VALUES.items():
        (FOLDER / f"{af.__version__}-{name}.pickle").write_bytes(pickle.dumps(make(), protocol=4))
