"""Functional environments in Stable-Baselines3."""

import copy
import functools
import pickle

import gymnasium as gym
import numpy as np
import pytest
from cases import crossed
from frames import calls_of
from functional_envs import Count, Masked, MaskedCounts, Sums, with_two_rewards
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from infos import Tells
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import arrayferry as af
from arrayferry_envs import CartPole
from arrayferry_gym import vector
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics

MODES = ("SAME_STEP", "DISABLED")


SPAWNED = functools.partial(AsyncVectorEnv, context="spawn")  # JAX may not be used after a fork


@pytest.mark.parametrize(("make", "mode"), crossed([Masked, MaskedCounts], MODES))
def test_infos_of_functional_environments_are_those_of_single_ones(make, mode):
    ours = SB3VecEnv(make().make_vec(3, autoreset_mode=mode))
    theirs = DummyVecEnv([lambda: make().make(xp="numpy")] * 3)
    actions = np.random.default_rng(0).integers(0, 3, (12, 3))
    ours.reset(), theirs.reset()
    for row in actions:
        np.testing.assert_equal(ours.reset_infos, theirs.reset_infos)
        np.testing.assert_equal(*(envs.step(row)[3] for envs in (ours, theirs)))


@pytest.mark.parametrize("mode", MODES)
def test_without_infos_each_environment_has_a_dict_of_its_own(mode):
    ours = SB3VecEnv(Sums().make_vec(3, xp="jax", autoreset_mode=mode))
    theirs = DummyVecEnv([lambda: Sums().make(xp="numpy")] * 3)
    ours.reset(), theirs.reset()
    for row in np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32):
        mine = ours.step(row)
        np.testing.assert_equal(mine[3], theirs.step(row)[3])
        np.testing.assert_equal(ours.reset_infos, theirs.reset_infos)
        assert len({*map(id, mine[3])}) == 3
        if mode == "SAME_STEP":
            assert not {"_by_environment", "build"} & {*calls_of(ours.step, row)}
            theirs.step(row)


@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_copies_go_on_alike(xp):
    envs = SB3VecEnv(CartPole().make_vec(2, xp=xp, autoreset_mode="SameStep"))
    envs.seed(0)
    envs.reset()
    actions = np.array([0, 1])
    copies = [pickle.loads(pickle.dumps(envs)), copy.deepcopy(envs)]
    expected = [envs.step(actions)[0] for _ in range(30)]  # in which episodes end
    for each in copies:
        assert np.array_equal([each.step(actions)[0] for _ in range(30)], expected)


def test_behind_an_adapter():
    """An adapter around environments in JAX returns PyTorch, and is no environment in JAX."""
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="Disabled")
    envs = SB3VecEnv(vector.ArrayConversion(served, env_xp="jax", target_xp="torch"))
    envs.reset()
    assert type(envs.step(np.ones(3, int))[0]) is np.ndarray
    assert served.xp == "jax"


def test_methods_and_attributes_of_a_batch():
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="SameStep")
    served.level = 1
    served.names = lambda: ["a", "b", "c"]
    served.set_level = lambda level: setattr(served, "level", level)
    envs = SB3VecEnv(RecordEpisodeStatistics(served))
    for name in ("action_space", "observation_space"):
        assert envs.get_attr(name) == [getattr(envs, name)] * 3
        assert envs.get_attr(name, 1) == [getattr(envs, name)]
    assert envs.get_attr("action_space")[0] == gym.make("CartPole-v1").action_space
    assert envs.env_method("names") == ["a", "b", "c"]
    assert envs.env_method("set_level", level=5) == [None] * 3
    assert envs.get_attr("level") == [5, 5, 5]
    assert envs.get_attr("episode_count") == [0, 0, 0]  # of a wrapper
    assert envs.env_is_wrapped(Monitor, 0) == [False]
    with pytest.raises(af.OptionError, match="supports only all environments at once"):
        envs.env_method("names", indices=[1])
    with pytest.raises(af.OptionError, match="supports only all environments at once"):
        envs.set_attr("level", 1, 0)
    for missing in ("reset", "step", "level", "missing"):
        with pytest.raises(AttributeError, match="neither the batch"):
            envs.env_method(missing)
    assert not envs.has_attr("missing")


class InInfos(Tells):
    """Says in infos which actions are allowed."""

    def _info(self, kind):
        return {"action_mask": np.arange(2) == self.episode % 2}


class Own(gym.Wrapper):
    def action_masks(self):
        return np.array([True, True, False])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("made", ["batch", "single", pytest.param("processes", marks=pytest.mark.long)])  # fmt: skip
def test_masks_of_observations_are_those_of_maskable_ppo(made, mode):
    if made == "batch":
        envs = SB3VecEnv(Masked().make_vec(3, xp="torch", autoreset_mode=mode))
    else:
        vectorise = SyncVectorEnv if made == "single" else SPAWNED
        makes = [Masked().make] * 3
        envs = SB3VecEnv(vectorise(makes, autoreset_mode=AutoresetMode[mode]))
    assert envs.has_attr("action_masks")
    with pytest.raises(gym.error.ResetNeeded):
        envs.env_method("action_masks")
    observation = envs.reset()
    for number in range(9):
        masks = envs.env_method("action_masks")
        assert [mask.dtype for mask in masks] == [bool] * 3
        np.testing.assert_array_equal(masks, observation["action_mask"])
        np.testing.assert_array_equal(envs.env_method("action_masks", indices=[2])[0], masks[2])
        np.testing.assert_array_equal(envs.get_attr("action_masks")[1](), masks[1])
        observation = envs.step(np.array([number % 3, 0, 1]))[0]
    envs.close()


def test_masks_of_infos_and_of_methods():
    envs = SB3VecEnv(SyncVectorEnv([InInfos] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    assert not envs.has_attr("action_masks")
    envs.reset()
    wanted = [False, True]
    for number in range(5):  # each second step is the last
        assert [mask.tolist() for mask in envs.env_method("action_masks")] == [wanted] * 2
        _, _, dones, infos = envs.step(np.zeros(2, int))
        assert dones.tolist() == [number % 2 == 1] * 2
        assert infos[0]["action_mask"].tolist() == wanted
        wanted = wanted[::-1] if dones.all() else wanted
    makes = [lambda: Own(Masked().make(xp="numpy"))] * 2
    envs = SB3VecEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))
    envs.reset()
    assert envs.env_method("action_masks")[0].tolist() == [True, True, False]


@pytest.mark.parametrize("xp", ["numpy", "jax"])
def test_several_rewards_are_refused_unless_they_are_combined(xp):
    envs = with_two_rewards(Count)().make_vec(2, xp=xp, autoreset_mode="SameStep")

    def stepped(combine):
        bridge = SB3VecEnv(gym.wrappers.vector.TransformReward(envs, combine))
        bridge.reset()
        return bridge.step(np.zeros(2, int))[1].tolist()

    for refused in (lambda: SB3VecEnv(envs), lambda: stepped(lambda x: x)):
        with pytest.raises(af.OptionError, match=r"have the shape \(2, 2\), .* TransformReward"):
            refused()
    for wrong in ([1.0], {"a": [1.0, 2.0]}):
        with pytest.raises((af.OptionError, TypeError), match=r"the rewards .* TransformReward"):
            stepped(lambda _, wrong=wrong: wrong)
    assert stepped(lambda _: [1.0, 2]) == stepped(lambda _: (1, np.float32(2))) == [1, 2]
    assert stepped(lambda rewards: 3 * rewards[:, 0]) == [3, 3]


@pytest.mark.parametrize("part", ["observation_space", "action_space"])
@pytest.mark.parametrize("a", [spaces.Discrete(3, start=1), spaces.MultiDiscrete([3], start=[-1])])
def test_numbers_that_do_not_begin_at_0_are_refused(part, a):
    env = type("Starts", (CartPole,), {part: spaces.Dict(a=a)})()
    with pytest.raises(af.OptionError, match=r"start=.*\['a'\].*Stable-Baselines3 expects numbers"):
        SB3VecEnv(env.make_vec(2, autoreset_mode="SameStep"))


def test_what_is_no_vector_environment_or_resets_later_is_refused():
    for wrong in ("CartPole-v1", CartPole(), gym.make("CartPole-v1")):
        with pytest.raises(TypeError, match="not a vector environment"):
            SB3VecEnv(wrong)
    with pytest.raises(af.OptionError, match="SameStep"):
        SB3VecEnv(gym.make_vec("CartPole-v1", num_envs=2))
