"""Third-party agents, and Gymnasium's checks and wrappers, on environments that belong to no library."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import vector as wrappers

import arrayferry_gym  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of third-party code

NAMES = ["Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum"]
TABULAR = ["Blackjack", "CliffWalking", "FrozenLake", "Taxi"]


@pytest.mark.parametrize("name", NAMES + TABULAR)
def test_gymnasium_checks(name):
    check_env(gym.make(f"arrayferry/{name}-v0", render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(
    "name",
    [
        "CartPole",
        *(pytest.param(name, marks=pytest.mark.long) for name in NAMES if name != "CartPole"),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_single_ones(name, mode):
    envs = gym.make_vec(f"arrayferry/{name}-v0", num_envs=2, vectorization_mode=mode)
    observation, _ = envs.reset(seed=1)
    for _ in range(5):
        observation, *_ = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(observation)
    envs.close()


@pytest.mark.parametrize("name", ["CartPole", "Pendulum", *TABULAR])
def test_stable_baselines3_accepts(name):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(gym.make(f"arrayferry/{name}-v0"))


@pytest.mark.parametrize("name", ["CartPole", "Pendulum"])
def test_stable_baselines3(name):
    PPO = pytest.importorskip("stable_baselines3").PPO
    model = PPO(
        "MlpPolicy", gym.make(f"arrayferry/{name}-v0"), n_steps=64, batch_size=32, device="cpu"
    )
    model.learn(128)
    assert model.num_timesteps == 128


@pytest.mark.parametrize("name", ["CartPole", "Pendulum"])
@pytest.mark.parametrize("xp", ["numpy", "torch"])
def test_torchrl(name, xp):
    envs = pytest.importorskip("torchrl.envs")
    single = envs.GymWrapper(gym.make(f"arrayferry/{name}-v0", xp=xp))
    envs.check_env_specs(single)
    assert single.rollout(20)["observation"].shape[0] > 5
    many = envs.GymWrapper(
        gym.make_vec(f"arrayferry/{name}-v0", num_envs=3, autoreset_mode="SameStep", xp=xp)
    )
    found = many.rollout(60, break_when_any_done=False)
    assert found.shape == (3, 60)
    if name == "CartPole":
        assert bool(found["next", "done"].any())
    final = found["next", "observation"][:, :-1]
    first = found["observation"][:, 1:]
    ended = found["next", "done"][:, :-1, 0]
    assert torch.equal(final[~ended], first[~ended])


def test_wrappers_of_vector_environments():
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=4)
    envs = wrappers.RecordEpisodeStatistics(envs)
    envs = wrappers.NormalizeReward(wrappers.NormalizeObservation(envs))
    envs = wrappers.ClipReward(wrappers.FlattenObservation(envs), -1, 1)
    envs.reset(seed=0)
    lengths = []
    for _ in range(200):
        _, _, _, _, infos = envs.step(envs.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert len(lengths) > 10
    assert 10 < np.mean(lengths) < 40
