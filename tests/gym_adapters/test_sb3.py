"""Vector environments of any library for Stable-Baselines3."""

import copy
import functools
import pickle

import gymnasium as gym
import numpy as np
import pytest
from cases import crossed
from envs import Masked, make_vec
from gymnasium import spaces
from gymnasium.vector import (
    AsyncVectorEnv,
    AutoresetMode,
    SyncVectorEnv,
    VectorWrapper,
)
from gymnasium.wrappers.vector import RecordEpisodeStatistics as OfGymnasium
from infos import Tells
from recipes import run

import arrayferry as af
from arrayferry_audit import BridgeContract, BridgeStep, Probe
from arrayferry_envs import CartPole
from arrayferry_gym import vector
from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecMonitor, VecNormalize

from arrayferry_gym.sb3 import SB3VecEnv

MODES = ("SAME_STEP", "DISABLED")
SPAWNED = functools.partial(AsyncVectorEnv, context="spawn")  # JAX may not be used after a fork


class TestSameStep(BridgeContract):
    """The conformance kit. An episode that terminates at the limit counts as terminated only."""

    exclusive = True

    def make(self):
        return SB3VecEnv(Probe().make_vec(self.num_envs, xp="jax", autoreset_mode="SameStep"))

    def reset(self, bridge, seed):
        if seed is not None:
            bridge.seed(seed)
        return bridge.reset()

    def step(self, bridge, actions):
        observation, reward, dones, infos = bridge.step(actions)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        final = [info.get("terminal_observation") for info in infos]
        return BridgeStep(observation, reward, dones & ~truncated, truncated, final)

    def spaces(self, bridge):
        return bridge.observation_space, bridge.action_space


class TestDisabled(TestSameStep):
    def make(self):
        return SB3VecEnv(Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="Disabled"))


class TestGymnasium(TestSameStep):
    def make(self):
        makes = [lambda: Probe().make()] * self.num_envs
        return SB3VecEnv(SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP))


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


class Counting(Masked):
    def info(self, xp, state, params):
        return {"count": state}


@pytest.mark.parametrize(("make", "mode"), crossed([Masked, Counting], MODES))
def test_infos_of_functional_environments_are_those_of_single_ones(make, mode):
    ours = SB3VecEnv(make().make_vec(3, autoreset_mode=mode))
    theirs = DummyVecEnv([lambda: make().make(xp="numpy")] * 3)
    actions = np.random.default_rng(0).integers(0, 3, (12, 3))
    ours.reset(), theirs.reset()
    for row in actions:
        np.testing.assert_equal(ours.reset_infos, theirs.reset_infos)
        np.testing.assert_equal(*(envs.step(row)[3] for envs in (ours, theirs)))


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


class Batch(VectorWrapper):
    """Has no `final_info`, and infos with things for each environment and for all."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)[0], {"mask": np.arange(3)}

    def step(self, actions):
        *results, infos = self.env.step(actions)
        infos = {
            "name": "abc", 5: np.arange(3), "each": ["a", "b", "c"], "mask": np.arange(3), "_name": "d",
            "size": np.float32(2), "bytes": b"abc", "names": {"x": "xyz"}, "set": {1, 2, 3},
            "final_obs": infos["final_obs"],
        }  # fmt: skip
        return *results, infos


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


def test_infos_of_a_batch():
    envs = SB3VecEnv(Batch(Probe().make_vec(3, autoreset_mode="SameStep")))
    envs.reset()
    infos = envs.step(np.array([0, 1, 0]))[3]
    shared = {"name": "abc", "_name": "d", "size": 2.0, "bytes": b"abc", "set": {1, 2, 3}}
    assert infos[2] == {
        **shared, 5: 2, "each": "c", "mask": 2, "names": {"x": "xyz"}, "TimeLimit.truncated": False
    }  # fmt: skip
    assert "mask" not in infos[1]  # it is of the next episode
    assert envs.reset_infos[1] == {"mask": 1}
    assert infos[1]["each"] == "b"


def test_behind_an_adapter():
    """An adapter around environments in JAX returns PyTorch, and is no environment in JAX."""
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="Disabled")
    envs = SB3VecEnv(vector.ArrayConversion(served, env_xp="jax", target_xp="torch"))
    envs.reset()
    assert type(envs.step(np.ones(3, int))[0]) is np.ndarray
    assert served.xp == "jax"


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
    if vectorise is SyncVectorEnv:
        assert envs.env_method("add", 1, indices=[2]) == [3]
    else:
        with pytest.raises(af.OptionError, match="all or none"):
            envs.env_method("add", 1, indices=[2])
    envs.close()


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
    with pytest.raises(af.OptionError, match="all or none"):
        envs.env_method("names", indices=[1])
    with pytest.raises(af.OptionError, match="all or none"):
        envs.set_attr("level", 1, 0)
    for missing in ("reset", "step", "level", "missing"):
        with pytest.raises(AttributeError, match="is a batch"):
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


@pytest.mark.parametrize("xp", ["numpy", "jax"])
def test_several_rewards_are_refused_unless_they_are_combined(xp):
    class Two(CartPole):
        def step(self, xp, rng, state, action, params):
            state, _, terminated = super().step(xp, rng, state, action, params)
            return state, xp.ones((2, 2), dtype=xp.float32), terminated

    envs = Two().make_vec(2, xp=xp, autoreset_mode="SameStep")

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
    with pytest.raises(af.OptionError, match=r"start=.*\['a'\].*Stable-Baselines3 takes numbers"):
        SB3VecEnv(env.make_vec(2, autoreset_mode="SameStep"))


def test_what_is_no_vector_environment_or_resets_later_is_refused():
    for wrong in ("CartPole-v1", CartPole(), gym.make("CartPole-v1")):
        with pytest.raises(TypeError, match="no vector environment"):
            SB3VecEnv(wrong)
    with pytest.raises(af.OptionError, match="SameStep"):
        SB3VecEnv(gym.make_vec("CartPole-v1", num_envs=2))


@pytest.mark.long
def test_the_recipe():
    assert run("Stable-Baselines3")["model"].num_timesteps >= 512


def test_under_their_wrappers():
    envs = VecNormalize(
        VecMonitor(SB3VecEnv(CartPole().make_vec(4, xp="jax", autoreset_mode="SameStep")))
    )
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, device="cpu", seed=0)
    model.learn(128)
    assert model.ep_info_buffer

    stacked = VecFrameStack(SB3VecEnv(Probe().make_vec(2, autoreset_mode="SameStep")), 3)
    stacked.reset()
    for _ in range(4):
        observation, _, dones, infos = stacked.step(np.zeros(2, int))
    assert dones.all()
    assert infos[0]["terminal_observation"][1::2].tolist() == [2, 3, 4]
    assert observation[0, 1::2].tolist() == [0, 0, 0]
