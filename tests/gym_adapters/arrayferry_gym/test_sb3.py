"""Vector environments of any library for Stable-Baselines3."""

import copy
import functools

import gymnasium as gym
import numpy as np
import pytest
from cases import crossed
from envs import make_vec
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper
from gymnasium.wrappers.vector import RecordEpisodeStatistics as OfGymnasium
from infos import Tells
from recipes import run

import arrayferry as af
from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from arrayferry_gym.sb3 import SB3VecEnv

MODES = ("SAME_STEP", "DISABLED")
SPAWNED = functools.partial(AsyncVectorEnv, context="spawn")  # JAX may not be used after a fork


class Parts(Tells):
    """Also has several parts in observations and actions, of which one is the reward, an attribute, a method and images."""

    observation_space = spaces.Dict(n=Tells.observation_space, parity=spaces.Discrete(2))
    action_space = spaces.MultiDiscrete([3, 5])
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode, level = "rgb_array", 1

    def _observed(self):
        return {"n": super()._observed(), "parity": np.int64(self.count % 2)}

    def step(self, action):
        observation, _, *others = super().step(action)
        return observation, float(action[0]), *others

    def render(self):
        return np.full((4, 4, 3), self.number, np.uint8)

    def add(self, value, times=1):
        return self.number + value * times


@pytest.mark.parametrize(("make", "mode"), crossed([Parts, Tells], MODES))
def test_steps_and_infos_are_those_of_their_own_vec_env(make, mode):
    makes = [functools.partial(make, number) for number in range(4)]
    ours = SB3VecEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode[mode]))
    theirs = DummyVecEnv(makes)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.render_mode == theirs.render_mode
    kept = []
    for number in range(30):
        if number in (0, 7, 16):
            before = [envs.reset() for envs in (ours, theirs)]
            np.testing.assert_equal(*before)
        np.testing.assert_equal(ours.reset_infos, theirs.reset_infos)
        actions = np.array([[number % 3, 1]] * 4) if make is Parts else np.zeros(4, int)
        results = [envs.step(actions) for envs in (ours, theirs)]
        for one, other in zip(results[0][1:3], results[1][1:3], strict=True):
            assert one.dtype == other.dtype
        np.testing.assert_equal(*results)
        kept.append((results[0][0], copy.deepcopy(results[0][0])))
    for now, then in kept:  # no later step has changed them
        np.testing.assert_equal(now, then)


class Adds(VectorWrapper):
    """Says of each step how often its environment has stepped, and at ends how long they were."""

    def reset(self, *, seed=None, options=None):
        self.counts = np.zeros(self.num_envs, int)
        return self.env.reset(seed=seed, options=options)

    def step(self, actions):
        *results, infos = self.env.step(actions)
        ended = results[2] | results[3]
        self.counts += 1
        infos = {**infos, "count": self.counts.copy(), "length": self.counts.copy()}
        infos["_length"] = ended
        self.counts[ended] = 0
        return *results, infos


@pytest.mark.parametrize("wrapper", [RecordEpisodeStatistics, OfGymnasium, Adds])
def test_what_wrappers_add_to_infos_is_of_the_step(wrapper):
    if wrapper is OfGymnasium and gym.__version__ < "1.4":
        pytest.skip("before Gymnasium 1.4, its lengths are wrong in this mode")
    makes = [functools.partial(Tells, number) for number in range(3)]
    served = wrapper(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))
    ours, theirs = SB3VecEnv(served), DummyVecEnv(makes)
    added = {"episode", "count", "length"}
    ours.reset(), theirs.reset()
    for number in range(1, 12):
        told = ours.step(np.zeros(3, int))[3], theirs.step(np.zeros(3, int))[3]
        for index, (mine, wanted) in enumerate(zip(*told, strict=True)):
            length = index + 2
            over = number % length == 0
            counts = {"count": number % length or length, "length": length}
            if wrapper is Adds:
                assert {k: mine[k] for k in added & mine.keys()} == (
                    counts if over else {"count": counts["count"]}
                )
            else:
                assert ("episode" in mine) == over
                assert not over or mine["episode"]["l"] == length
            mine = {k: x for k, x in mine.items() if k not in added}
            if wrapper is not Adds:  # which keys it adds is known
                np.testing.assert_equal(mine, wanted)
            assert not added & ours.reset_infos[index].keys()
            assert mine["stepped"] == wanted["stepped"]
            assert mine["both"] == wanted["both"]
            assert "begun" not in mine


@pytest.mark.parametrize(
    "vectorise", [SyncVectorEnv, pytest.param(SPAWNED, marks=pytest.mark.long)]
)
def test_attributes_methods_and_images(vectorise):
    makes = [functools.partial(Parts, number) for number in range(3)]
    envs = SB3VecEnv(vectorise(makes, autoreset_mode=AutoresetMode.SAME_STEP))
    assert envs.get_attr("number") == [0, 1, 2]
    assert envs.get_attr("number", 1) == [1]
    assert envs.get_attr("number", [0, 2]) == [0, 2]
    envs.set_attr("level", 7, [1])
    assert envs.get_attr("level") == [1, 7, 1]
    envs.set_attr("level", 9)
    assert envs.get_attr("level") == [9, 9, 9]
    assert envs.env_method("add", 10, times=2) == [20, 21, 22]
    assert envs.env_is_wrapped(Monitor) == [False] * 3
    if vectorise is SyncVectorEnv:
        assert not envs.has_attr("missing")
    envs.reset()
    assert [image[0, 0, 0] for image in envs.get_images()] == [0, 1, 2]
    assert envs.render().shape == (8, 8, 3)
    assert envs.env_method("add", 1, indices=[2]) == [3]
    assert envs.env_method("add", 1, indices=[2, 0]) == [3, 1]
    assert envs.env_method("add", 1, indices=[]) == []
    if vectorise is not SyncVectorEnv:
        with (
            pytest.warns(UserWarning, match="ERROR"),
            pytest.raises(TypeError, match="missing 1 required"),
        ):
            envs.env_method("add", indices=[1])
    envs.close()


def test_seeds_and_options_count_for_the_next_reset():
    envs = SB3VecEnv(make_vec(3, AutoresetMode.SAME_STEP))
    theirs = DummyVecEnv([functools.partial(gym.make, "CartPole-v1")] * 3)
    theirs.seed(5)
    first = theirs.reset()
    for _ in range(2):
        envs.seed(5)
        np.testing.assert_array_equal(envs.reset(), first)
    assert (envs.reset() != first).any()
    envs.set_options({"low": 0.5, "high": 0.5})
    assert (envs.reset() == 0.5).all()
    assert (envs.reset() != 0.5).all()
    envs.set_options([{"low": 0.5}, {}, {}])
    with pytest.raises(af.OptionError, match="was given different options"):
        envs.reset()


@pytest.mark.long
def test_the_recipe():
    assert run("Stable-Baselines3")["model"].num_timesteps >= 512
