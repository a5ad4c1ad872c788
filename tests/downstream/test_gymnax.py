"""gymnax, which pins an older Gymnasium and so needs a separate environment: `make downstream`."""

import numpy as np
import pytest
import torch

gymnax = pytest.importorskip("gymnax")
wrappers = pytest.importorskip("gymnax.wrappers")

from arrayferry_gym import ArrayConversion, JaxToTorch, vector  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_single_environment():
    inner, params = gymnax.make("CartPole-v1")
    env = JaxToTorch(wrappers.GymnaxToGymWrapper(inner, params, seed=0))
    observation, _ = env.reset(seed=1)
    assert isinstance(observation, torch.Tensor)
    for _ in range(3):
        observation, reward, terminated, *_ = env.step(env.action_space.sample())
        assert observation.shape == (4,)
        assert type(reward) is float
        assert type(terminated) is bool
    assert env.observation_space.contains(observation)


def test_a_vector_environment():
    inner, params = gymnax.make("CartPole-v1")
    envs = wrappers.GymnaxToVectorGymWrapper(inner, num_envs=3, params=params, seed=0)
    envs = vector.ArrayConversion(envs, env_xp="jax", target_xp="torch")
    observation, _ = envs.reset(seed=1)
    assert observation.shape == (3, 4)
    results = envs.step(torch.zeros(3, dtype=torch.int32))
    assert all(isinstance(x, torch.Tensor) for x in results[:4])


def test_its_library_is_detected():
    inner, params = gymnax.make("Catch-bsuite")
    env = ArrayConversion(wrappers.GymnaxToGymWrapper(inner, params, seed=0), target_xp=np)
    env.reset(seed=1)
    assert env.env_backend.name == "jax"
    assert isinstance(env.step(1)[0], np.ndarray)
