"""Agents, environments and wrappers of other projects with adapters and functional environments, a few steps each."""

import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from envs import begun

from arrayferry_gym import ArrayConversion, NumpyToTorch

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of third-party code


def test_minigrid():
    pytest.importorskip("minigrid")
    env = NumpyToTorch(gym.make("MiniGrid-Empty-5x5-v0"))
    observation, _ = env.reset(seed=0)
    observation, *_ = env.step(torch.tensor(2))
    assert observation["mission"] == "get to the green goal square"
    assert observation["image"].dtype == torch.uint8
    assert env.observation_space.contains(observation)


def test_mujoco_for_a_jax_agent(enable_x64):
    pytest.importorskip("mujoco")
    env = ArrayConversion(gym.make("HalfCheetah-v5"), target_xp="jax")
    observation, _ = env.reset(seed=0)
    assert observation.dtype == np.float32
    action = env.action_space.sample()
    assert isinstance(action, jax.Array)
    observation, *_ = env.step(action)
    assert env.observation_space.contains(observation)
    with enable_x64(True):
        assert env.step(action)[0].dtype == np.float64


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Blackjack-v1"])
@pytest.mark.parametrize("target", ["torch", "jax", "dask", "array_api_strict"])
def test_toy_text(name, target):
    env = begun(ArrayConversion(gym.make(name), target_xp=target))
    for _ in range(10):
        observation, reward, ended, cut, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert type(reward) is float
        if ended or cut:
            break


@pytest.mark.long
def test_a_model_of_stable_baselines_loads_without_arrayferry(run_python, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    env = ArrayConversion(gym.make("phys2d/CartPole-v1"), env_xp="jax", target_xp="numpy")
    model = sb3.PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8)
    model.save(tmp_path / "model")
    out = run_python(
        "import sys\n"
        "for name in ('arrayferry', 'arrayferry_gym', 'arrayferry_plugins'):\n"
        "    sys.modules[name] = None\n"
        "import stable_baselines3 as sb3\n"
        f"model = sb3.PPO.load({str(tmp_path / 'model')!r}, device='cpu')\n"
        "print(type(model.observation_space).__module__, model.predict(model.observation_space.sample())[0])"
    )
    assert out.startswith("gymnasium.spaces.box")
