"""The shape and the dtype of rewards: what an environment states, and what wrappers make of it."""

import jax
import numpy as np
import pytest
from envs import begun
from functional_envs import Sums, with_two_rewards
from numpy.testing import assert_array_equal
from refusals import refused_step

import arrayferry as af
from arrayferry_envs import (
    EnvResultError,
    Functions,
    check_functional_env,
    repeat_action,
    rollout,
    wrap,
)
from arrayferry_gym.wrappers import kernels


class Added(kernels.Kernel):
    """Adds the rewards of several objectives, without saying so."""

    def step(self, xp, state, result):
        return state, result._replace(reward=xp.sum(result.reward, axis=1))


def stating(env=Sums, **attributes):
    return type("Stating", (env,), attributes)()


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax", "array_api_strict"])
def test_another_shape_than_the_stated_one_is_an_error(xp):
    for shape, given in (((2,), r"\(3,\)"), ((), r"\(3, 2\)")):
        env = stating(Sums if shape else with_two_rewards(Sums), reward_shape=shape)
        envs = begun(env.make_vec(3, xp=xp))
        words = rf"has the shape {given}, .*reward_shape = .*Set reward_shape"
        refused_step(envs, envs.action_space.sample(), words, EnvResultError)
    (problem,) = {each.what for each in check_functional_env(stating(reward_shape=(2,)))}
    assert "reward_shape = (2,)" in problem


@pytest.mark.parametrize(("attributes", "words"), [
    ({"reward_shape": 2}, "reward_shape of Stating is 2"), ({"reward_shape": (-1,)}, "tuple of whole numbers"),
    ({"reward_dtype": "int32"}, "reward_dtype of Stating is 'int32'"), ({"reward_dtype": "text"}, "name of a float dtype"),
])  # fmt: skip
def test_what_cannot_be_a_shape_or_a_dtype(attributes, words):
    with pytest.raises(EnvResultError, match=words):
        stating(**attributes).make_vec(2)


@pytest.mark.parametrize("xp", ["numpy", "torch", "array_api_strict"])
def test_rewards_have_the_stated_dtype(xp):
    double = stating(reward_dtype="float64")
    for env in (double, repeat_action(double, 2)):
        envs = begun(env.make_vec(2, xp=xp))
        assert af.convert(envs.step(envs.action_space.sample())[1], "numpy").dtype == np.float64
    combined = wrap(double, kernels.TransformReward(lambda reward: 2 * reward))
    assert combined.reward_dtype == "float64"
    assert double.make_vec(2, xp="jax").reset(seed=0)  # 32 bits there

    class Wide(Sums):
        reward_dtype = "float32"

        def step(self, xp, rng, state, action, params):
            state, reward, *ended = super().step(xp, rng, state, action, params)
            return (state, xp.astype(reward, xp.float64), *ended)

    envs = begun(Wide().make_vec(2, xp=xp))
    for _ in range(3):
        reward = envs.step(envs.action_space.sample())[1]
        assert af.convert(reward, "numpy").dtype == np.float32


@pytest.mark.parametrize("stated", [None, {}, {"shape": ()}])
def test_a_kernel_that_adds_rewards(stated):
    def ones(params, observation, key):
        return jax.numpy.ones(3), None

    kernel = Added() if stated is None else kernels.TransformReward(lambda r: r.sum(1), **stated)
    env = wrap(with_two_rewards(Sums)(), kernel, kernels.RecordEpisodeStatistics())
    assert env.reward_shape == ()
    carry, steps = rollout(env, ones, None, jax.random.key(0), 4, 3)
    assert steps.reward.shape == (4, 3)
    assert_array_equal(carry.episode_return, np.zeros(3))
    assert_array_equal(carry.env_state.wrappers[1].episode["r"], np.zeros(3))


def test_a_function_of_rewards_is_called_when_their_shape_is_asked_for():
    given = []
    env = wrap(Sums(), kernels.TransformReward(lambda reward: given.append(reward) or 1 / reward))
    assert given == []
    assert env.reward_shape == ()
    assert given


def test_no_step_is_taken_to_find_out():
    class Counted(with_two_rewards(Sums)):
        steps = []

        def step(self, xp, rng, state, action, params):
            self.steps.append(xp)
            return super().step(xp, rng, state, action, params)

    env = wrap(Counted(), kernels.RecordEpisodeStatistics(), kernels.NormalizeReward())
    assert env.reward_shape == (2,)
    Functions(env).reset(jax.random.key(0), 3)
    with pytest.raises(af.OptionError, match=r"shape \(3, 2\)"):
        pytest.importorskip("arrayferry_gym.sb3").SB3VecEnv(
            Counted().make_vec(3, autoreset_mode="SameStep")
        )
    assert Counted.steps == []
