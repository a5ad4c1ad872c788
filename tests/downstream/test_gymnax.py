"""gymnax, which pins an older Gymnasium and so needs a separate environment: `make downstream`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

gymnax = pytest.importorskip("gymnax")
wrappers = pytest.importorskip("gymnax.wrappers")

from arrayferry_gym import ArrayConversion, JaxToTorch, vector  # noqa: E402
from arrayferry_gym.functional import from_env, rollout  # noqa: E402

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


def made(name, **params):
    inner, own = gymnax.make(name)
    return from_env(inner, own.replace(**params)), inner, own.replace(**params)


@pytest.mark.parametrize("name", ["CartPole-v1", "DiscountingChain-bsuite", "DeepSea-bsuite"])
def test_steps_of_from_env_are_those_of_step_env(name):
    """Also observations that show the limit, and states that begin in other dtypes."""
    env, inner, params = made(name)
    envs = env.make_vec(3, xp="torch", autoreset_mode="Disabled")
    envs.reset(seed=1)
    for _ in range(5):
        state = envs.state.tree[1]
        seen, reward, terminated, truncated, _ = envs.step(np.ones(3, int))
        own = jax.vmap(lambda s: inner.step_env(jax.random.key(0), s, 1, params))(state)
        np.testing.assert_allclose(seen.numpy(), own[0], rtol=1e-6)
        np.testing.assert_allclose(reward.numpy(), own[2], rtol=1e-6)
        assert terminated.tolist() == own[3].tolist()
        assert not truncated.any()


@pytest.mark.parametrize("name", ["Pendulum-v1", "BernoulliBandit-misc"])
def test_the_limit_of_from_env_is_a_truncation(name):
    """The limit of a bandit is a float."""
    env, _, _ = made(name, max_steps_in_episode=3 if name == "Pendulum-v1" else 3.0)
    assert env.max_episode_steps == 3
    space = env.action_space

    def policy(params, observation, key):
        return jnp.zeros((2, *space.shape), space.dtype), None

    transitions = rollout(env, policy, None, jax.random.key(0), 7, 2)[1]
    assert transitions.truncated[:, 0].tolist() == [False, False, True, False, False, True, False]
    assert not transitions.terminated.any()
    longer = rollout(env, policy, None, jax.random.key(0), 7, 2, max_episode_steps=None)[1]
    assert not (longer.terminated | longer.truncated).any()


def test_from_env_does_not_look_through_wrappers():
    inner, _ = gymnax.make("Catch-bsuite")
    with pytest.raises(TypeError, match="pass the environment inside"):
        from_env(wrappers.purerl.FlattenObservationWrapper(inner))


def test_equal_environments_of_gymnax_are_equal():
    assert made("CartPole-v1")[0] == made("CartPole-v1")[0]
    assert made("DeepSea-bsuite")[0] == made("DeepSea-bsuite")[0]
    assert made("CartPole-v1")[0] != made("CartPole-v1", gravity=1.0)[0]
