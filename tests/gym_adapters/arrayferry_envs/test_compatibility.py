"""Functional environments with others' wrappers and tools."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from envs import begun, make_vec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from remote_workers import CARTPOLE

import arrayferry_envs  # noqa: F401, which registers ids
from arrayferry_gym import ArrayConversion, JaxToNumpy, NumpyToTorch, vector

NAMES = ["CartPole", "Pendulum"]


def ours(make, name, **options):
    return lambda: make(f"arrayferry/{name}-v0", **options)


CHECKED = {
    "an adapter of JAX": lambda: JaxToNumpy(gym.make("phys2d/CartPole-v1")),
    "an adapter of NumPy": lambda: ArrayConversion(CARTPOLE(), target_xp="numpy"),
    **{name: ours(gym.make, name, render_mode="rgb_array") for name in NAMES},
}


PHYS2D = pytest.mark.assumes_other("x64", "strict")
"""Gymnasium's environment in JAX promotes dtypes, also those of observations."""


@pytest.mark.parametrize("name", [pytest.param("an adapter of JAX", marks=PHYS2D), *[*CHECKED][1:]])
def test_gymnasium_and_stable_baselines3_check(name):
    check_env(CHECKED[name](), skip_render_check=name not in NAMES)
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(CHECKED[name]())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_single_ones(name, mode):
    envs = gym.make_vec(f"arrayferry/{name}-v0", num_envs=2, vectorization_mode=mode)
    observation, _ = envs.reset(seed=1)
    for _ in range(5):
        observation, *_ = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(observation)
    envs.close()


OURS = [*itertools.product(NAMES, ["numpy", "torch"])]


SINGLE = [
    pytest.param(CHECKED["an adapter of JAX"], marks=PHYS2D),
    lambda: NumpyToTorch(CARTPOLE()),
    *(ours(gym.make, name, xp=xp) for name, xp in OURS),
]


@pytest.mark.parametrize("make", SINGLE)
def test_torchrl_checks_specs(make):
    envs = pytest.importorskip("torchrl.envs")
    env = envs.GymWrapper(make())
    envs.check_env_specs(env)
    assert env.rollout(20)["observation"].shape[0] > 5


VECTORS = [
    lambda: vector.ArrayConversion(make_vec(3, AutoresetMode.SAME_STEP), target_xp="numpy"),
    lambda: vector.NumpyToTorch(make_vec(3, AutoresetMode.SAME_STEP), reward_dtype="float32"),
    *(ours(gym.make_vec, name, num_envs=3, autoreset_mode="SameStep", xp=xp) for name, xp in OURS),
]


@pytest.mark.assumes_other("float64")
@pytest.mark.parametrize("make", VECTORS)
def test_torchrl_rolls_out_vectors_in_same_step_mode(make):
    envs = make()
    rollout = pytest.importorskip("torchrl.envs").GymWrapper(envs)
    found = rollout.rollout(60, break_when_any_done=False)
    assert found.shape == (3, 60)
    ended = found["next", "done"][:, :-1, 0]
    assert bool(ended.any()) == ("Pendulum" not in str(envs))
    final, first = found["next", "observation"][:, :-1], found["observation"][:, 1:]
    assert torch.equal(final[~ended], first[~ended])


pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of third-party code


def test_wrappers_of_vector_environments():
    envs = gym.make_vec("arrayferry/CartPole-v0", num_envs=4)
    envs = wrappers.RecordEpisodeStatistics(envs)
    envs = wrappers.NormalizeReward(wrappers.NormalizeObservation(envs))
    envs = begun(wrappers.ClipReward(wrappers.FlattenObservation(envs), -1, 1), 0)
    lengths = []
    for _ in range(200):
        _, _, _, _, infos = envs.step(envs.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert len(lengths) > 10
    assert 10 < np.mean(lengths) < 40
