"""Vector environments of any library for Stable-Baselines3."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from recipes import run

import arrayferry as af
from arrayferry_gym import vector
from arrayferry_gym.functional import CartPole, FunctionalEnv
from arrayferry_gym.testing import BridgeContract, BridgeStep, Probe
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


class Counts(gym.Env):
    """Counts its steps. The environment with the number k ends after 2 + k steps; the odd ones are truncated."""

    observation_space = spaces.Dict(
        {"n": spaces.Box(-1e6, 1e6, (2,), np.float32), "parity": spaces.Discrete(2)}
    )
    action_space = spaces.MultiDiscrete([3, 5])
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, number=0, render_mode="rgb_array"):
        self.number, self.render_mode, self.level = number, render_mode, 1

    def _observed(self):
        return {"n": np.float32([self.count, self.start]), "parity": np.int64(self.count % 2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.start = float((options or {}).get("start", self.np_random.integers(1000)))
        return self._observed(), {"begun": self.start}

    def step(self, action):
        self.count += 1
        over = self.count == 2 + self.number
        odd = self.number % 2 == 1
        info = {"count": self.count} | ({"rare": "text"} if self.count == 2 else {})
        return self._observed(), float(action[0]), over and not odd, over and odd, info

    def render(self):
        return np.full((4, 4, 3), self.number, np.uint8)

    def add(self, value, times=1):
        return self.number + value * times


def made(mode, vectorise=SyncVectorEnv, n=3):
    makes = [lambda number=number: Counts(number) for number in range(n)]
    return SB3VecEnv(vectorise(makes, autoreset_mode=AutoresetMode[mode]))


def rows(observation):
    return {key: np.asarray(value).copy() for key, value in observation.items()}


@pytest.mark.parametrize("mode", MODES)
def test_steps_are_those_of_their_own_vec_env(mode):
    ours, theirs = made(mode), DummyVecEnv([lambda k=k: Counts(k) for k in range(3)])
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.render_mode == theirs.render_mode == "rgb_array"
    for envs in (ours, theirs):
        envs.seed(3)
    before = [rows(envs.reset()) for envs in (ours, theirs)]
    kept = []
    for number in range(12):
        np.testing.assert_equal(*before)
        np.testing.assert_equal(ours.reset_infos, theirs.reset_infos)
        actions = np.array([[number % 3, 1]] * 3)
        results = [envs.step(actions) for envs in (ours, theirs)]
        for one, other in zip(results[0][1:3], results[1][1:3], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        for one, other in zip(results[0][3], results[1][3], strict=True):
            assert one.get("TimeLimit.truncated", False) == other["TimeLimit.truncated"]
            names = other.keys() - {"TimeLimit.truncated"}
            assert one.keys() - {"TimeLimit.truncated"} == names | (one.keys() & {"begun"})
            np.testing.assert_equal({k: one[k] for k in names}, {k: other[k] for k in names})
        kept.append((results[0][0], rows(results[0][0])))
        before = [rows(result[0]) for result in results]
    for now, then in kept:  # no later step has changed them
        np.testing.assert_equal(rows(now), then)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("xp", ["numpy", "torch", "jax"])
def test_functional_environments_of_every_library(xp, mode):
    served = CartPole().make_vec(5, xp=xp, autoreset_mode=mode, max_episode_steps=15)
    envs = SB3VecEnv(RecordEpisodeStatistics(served))
    assert served.xp == xp
    envs.seed(1)
    observation, lengths, over = envs.reset(), np.zeros(5, int), set()
    for _ in range(60):
        previous = observation
        observation, rewards, dones, infos = envs.step(np.ones(5, int))
        assert type(observation) is np.ndarray
        assert rewards.tolist() == [1.0] * 5
        lengths += 1
        for index in np.flatnonzero(dones):
            info = infos[index]
            final = info["terminal_observation"]
            assert np.abs(observation[index]).max() <= 0.05  # of a new episode
            moved = previous[index][0] + 0.02 * previous[index][1]
            assert final[0] == pytest.approx(moved, abs=1e-5)
            assert info["TimeLimit.truncated"] == (lengths[index] == 15 and abs(final[2]) < 0.2095)
            over.add(info["TimeLimit.truncated"])
            assert info["episode"]["l"] == info["episode"]["r"] == lengths[index]
            lengths[index] = 0
        assert all("terminal_observation" not in infos[i] for i in np.flatnonzero(~dones))
    assert False in over


def test_behind_an_adapter():
    """An adapter around environments in JAX returns PyTorch, and is no environment in JAX."""
    served = CartPole().make_vec(3, xp="jax", autoreset_mode="Disabled")
    envs = SB3VecEnv(vector.ArrayConversion(served, env_xp="jax", target_xp="torch"))
    envs.reset()
    assert type(envs.step(np.ones(3, int))[0]) is np.ndarray
    assert served.xp == "jax"


def test_attributes_methods_and_images():
    for vectorise in (SyncVectorEnv, SPAWNED):
        envs = made("SAME_STEP", vectorise)
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
    batch = SB3VecEnv(CartPole().make_vec(2, autoreset_mode="SameStep"))
    assert batch.get_attr("render_mode") == [None, None]
    assert batch.env_is_wrapped(Monitor, 0) == [False]
    with pytest.raises(AttributeError, match="is a batch"):
        batch.env_method("add", 1)
    with pytest.raises(af.OptionError, match="all or none"):
        batch.set_attr("level", 1, 0)


def test_seeds_and_options_count_for_the_next_reset():
    envs = made("SAME_STEP")
    envs.seed(5)
    first = rows(envs.reset())["n"]
    envs.seed(5)
    np.testing.assert_array_equal(rows(envs.reset())["n"], first)
    assert (rows(envs.reset())["n"][:, 1] != first[:, 1]).any()
    envs.set_options({"start": 4.5})
    assert rows(envs.reset())["n"][:, 1].tolist() == [4.5] * 3
    assert rows(envs.reset())["n"][:, 1].tolist() != [4.5] * 3
    envs.set_options([{"start": 1.0}, {}, {}])
    with pytest.raises(af.OptionError, match="different options"):
        envs.reset()


@pytest.mark.parametrize("wrong", ["CartPole-v1", CartPole(), gym.make("CartPole-v1")])
def test_what_is_no_vector_environment_is_refused(wrong):
    with pytest.raises(TypeError, match="no vector environment"):
        SB3VecEnv(wrong)


def test_the_mode_is_checked():
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

    class Frames(FunctionalEnv):
        observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)
        action_space = spaces.Discrete(2)
        max_episode_steps = 5

        def reset(self, xp, rng, n, params):
            return xp.zeros((n,), dtype=xp.float32)

        def step(self, xp, rng, state, action, params):
            return state + 1, 1.0, False

        def observe(self, xp, state, params):
            return xp.zeros((state.shape[0], 8, 8, 1), dtype=xp.uint8) + xp.astype(
                state[:, None, None, None], xp.uint8
            )

    stacked = VecFrameStack(SB3VecEnv(Frames().make_vec(2, autoreset_mode="SameStep")), 3)
    stacked.reset()
    for _ in range(5):
        observation, _, dones, infos = stacked.step(np.zeros(2, int))
    assert dones.all()
    assert infos[0]["terminal_observation"][0, 0].tolist() == [3, 4, 5]
    assert observation[0, 0, 0].tolist() == [0, 0, 0]


@pytest.mark.long
def test_ppo_learns_cart_pole_of_jax():
    envs = RecordEpisodeStatistics(CartPole().make_vec(16, xp="jax", autoreset_mode="SameStep"))
    model = PPO("MlpPolicy", SB3VecEnv(envs), n_steps=128, batch_size=256, n_epochs=8, learning_rate=1e-3,
                gamma=0.98, device="cpu", seed=1)  # fmt: skip
    model.learn(30_000)
    assert np.mean([info["r"] for info in list(model.ep_info_buffer)[-30:]]) > 100
