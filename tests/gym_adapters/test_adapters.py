from __future__ import annotations

import pickle

import gymnasium as gym
import jax
import numpy as np
import pytest
import torch

import arrayferry as af
from arrayferry_gym import ArrayConversion, JaxToNumpy, JaxToTorch, NumpyToTorch, vector


def test_numpy_environment_for_a_torch_agent():
    env = NumpyToTorch(gym.make("CartPole-v1"))
    plain = gym.make("CartPole-v1")
    observation, info = env.reset(seed=4)
    expected, _ = plain.reset(seed=4)
    np.testing.assert_array_equal(observation.numpy(), expected)
    assert info == {}
    observation, reward, terminated, truncated, info = env.step(torch.tensor(1))
    np.testing.assert_array_equal(observation.numpy(), plain.step(1)[0])
    assert type(reward) is float
    assert type(terminated) is bool
    assert type(truncated) is bool


def test_both_libraries_are_detected_at_run_time():
    env = ArrayConversion(gym.make("phys2d/CartPole-v1"))
    observation, _ = env.reset(seed=1)
    assert af.backend_of(observation).name == "jax"
    for action, expected in (
        (torch.tensor(1), torch.Tensor),
        (np.int64(0), np.ndarray),
        (jax.numpy.array(1), jax.Array),
        (1, jax.Array),
    ):
        assert isinstance(env.step(action)[0], expected)


def test_a_library_that_the_metadata_do_not_tell():
    class Silent(gym.Env):
        action_space = observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        xp = jax.numpy

        def reset(self, *, seed=None, options=None):
            return self.xp.zeros(2), {}

        def step(self, action):
            self.taken = action
            return self.xp.zeros(2), 0.0, False, False, {}

    for xp, kind in ((jax.numpy, jax.Array), (torch, torch.Tensor)):
        env = ArrayConversion(Silent(), target_xp="numpy")
        env.env.xp = xp
        observation, _ = env.reset()
        assert isinstance(observation, np.ndarray)
        for _ in range(3):
            env.step(np.ones(2, np.float32))
            assert isinstance(env.env.taken, kind)


def test_a_discrete_action_is_hashable():
    env = NumpyToTorch(gym.make("FrozenLake-v1"))
    env.reset(seed=1)
    observation, *_ = env.step(torch.tensor(2))
    assert isinstance(observation, torch.Tensor)


def test_jax_environment_for_numpy_and_torch_agents():
    for wrapper, expected in ((JaxToNumpy, np.ndarray), (JaxToTorch, torch.Tensor)):
        env = wrapper(gym.make("phys2d/CartPole-v1"))
        assert isinstance(env.reset(seed=2)[0], expected)
        action = np.int32(1) if expected is np.ndarray else torch.tensor(1)
        assert isinstance(env.step(action)[0], expected)


@pytest.mark.parametrize("mode", list(gym.vector.AutoresetMode))
def test_vector_environments_in_every_autoreset_mode(mode):
    make = lambda: gym.make_vec(  # noqa: E731
        "CartPole-v1", num_envs=3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    envs, plain = vector.NumpyToTorch(make()), make()
    envs.reset(seed=1)
    plain.reset(seed=1)
    steps = 8 if mode is gym.vector.AutoresetMode.DISABLED else 40
    for _ in range(steps):
        got = envs.step(torch.ones(3, dtype=torch.int64))
        expected = plain.step(np.ones(3, np.int64))
        for ours, theirs in zip(got[:4], expected[:4], strict=True):
            assert isinstance(ours, torch.Tensor)
            np.testing.assert_array_equal(ours.numpy(), theirs)
        assert got[4].keys() == expected[4].keys()
        if "final_obs" in expected[4]:
            for ours, theirs in zip(got[4]["final_obs"], expected[4]["final_obs"], strict=True):
                assert (ours is None) == (theirs is None)
                if ours is not None:
                    np.testing.assert_array_equal(ours.numpy(), theirs)
    envs.close()
    plain.close()


def test_jax_vector_environment_for_a_torch_agent():
    envs = vector.JaxToTorch(gym.make_vec("phys2d/CartPole-v1", num_envs=2))
    observation, _ = envs.reset(seed=1)
    assert observation.shape == (2, 4)
    result = envs.step(torch.zeros(2, dtype=torch.int32))
    assert all(isinstance(x, torch.Tensor) for x in result[:4])


def test_an_unpickled_adapter_continues():
    env = NumpyToTorch(gym.make("CartPole-v1"))
    env.reset(seed=3)
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        np.testing.assert_array_equal(copy.step(torch.tensor(1))[0], env.step(torch.tensor(1))[0])


def test_the_spec_can_be_sent_as_json():
    env = ArrayConversion(gym.make("CartPole-v1"), env_xp=np, target_xp=torch)
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    again = gym.make(spec)
    assert isinstance(again.reset(seed=1)[0], torch.Tensor)


def test_without_gymnasium_the_error_names_the_install_command(run_python):
    out = run_python(
        "import sys; sys.modules['gymnasium'] = None\n"
        "try:\n    import arrayferry_gym\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    assert "pip install 'arrayferry[gym]'" in out
