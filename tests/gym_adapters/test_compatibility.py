"""Agents, environments and wrappers of other projects with adapters and functional environments, a few steps each."""

import itertools

import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from envs import begun, make_vec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from remote_workers import CARTPOLE

from arrayferry_gym import ArrayConversion, JaxToNumpy, NumpyToTorch, vector

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of third-party code


NAMES = ["CartPole", "Pendulum"]
CHECKED = {
    "an adapter of JAX": lambda: JaxToNumpy(gym.make("phys2d/CartPole-v1")),
    "an adapter of NumPy": lambda: ArrayConversion(CARTPOLE(), target_xp="numpy"),
    **{
        name: lambda name=name: gym.make(f"arrayferry/{name}-v0", render_mode="rgb_array")
        for name in NAMES
    },
}


@pytest.mark.parametrize("name", CHECKED)
def test_gymnasium_and_stable_baselines3_check(name):
    check_env(CHECKED[name](), skip_render_check=name not in NAMES)
    pytest.importorskip("stable_baselines3.common.env_checker").check_env(CHECKED[name]())


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


@pytest.mark.parametrize(
    "make",
    [
        CHECKED["an adapter of JAX"],
        lambda: NumpyToTorch(CARTPOLE()),
        *(lambda env=env: gym.make(f"arrayferry/{env[0]}-v0", xp=env[1]) for env in OURS),
    ],
)
def test_torchrl_checks_specs(make):
    envs = pytest.importorskip("torchrl.envs")
    env = envs.GymWrapper(make())
    envs.check_env_specs(env)
    assert env.rollout(20)["observation"].shape[0] > 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: vector.ArrayConversion(make_vec(3, AutoresetMode.SAME_STEP), target_xp="numpy"),
        lambda: vector.NumpyToTorch(make_vec(3, AutoresetMode.SAME_STEP), reward_dtype="float32"),
        *(
            lambda env=env: gym.make_vec(
                f"arrayferry/{env[0]}-v0", num_envs=3, autoreset_mode="SameStep", xp=env[1]
            )
            for env in OURS
        ),
    ],
)
def test_torchrl_rolls_out_vectors_in_same_step_mode(make):
    envs = make()
    rollout = pytest.importorskip("torchrl.envs").GymWrapper(envs)
    found = rollout.rollout(60, break_when_any_done=False)
    assert found.shape == (3, 60)
    ended = found["next", "done"][:, :-1, 0]
    assert bool(ended.any()) == ("Pendulum" not in str(envs))
    final, first = found["next", "observation"][:, :-1], found["observation"][:, 1:]
    assert torch.equal(final[~ended], first[~ended])


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
