"""Batches of tensors that are no `VectorEnv`, as those of simulators: refused, and single environments that look alike are not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from simulators import ONE, IsaacLab, ManiSkill

from arrayferry_gym import ArrayConversion, JaxToTorch, vector, wrappers

PART = spaces.Box(-1, 1, (3,), np.float32)


def simulator(count, stated="both"):
    """Return a batch that states its spaces and those of one environment, those of one as its own, or its own alone."""
    env = ManiSkill(count).unwrapped
    if stated == "one":
        env.observation_space, env.action_space = ONE, env.single_action_space
    if stated != "both":
        del env.single_observation_space, env.single_action_space
    return env


class Plain:
    """A simulator that is not of Gymnasium."""

    num_envs = 4

    def step(self, actions):
        raise NotImplementedError


class First(gym.Wrapper):
    """Shows the first environment of a batch."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = env.unwrapped.single_observation_space
        self.action_space = env.unwrapped.single_action_space

    def reset(self, **options):
        observation, infos = self.env.reset(**options)
        return observation[0].numpy(), infos

    def step(self, action):
        *results, infos = self.env.step(torch.zeros(self.env.unwrapped.num_envs))
        observation, reward, terminated, truncated = (x[0].numpy() for x in results)
        return observation, float(reward), bool(terminated), bool(truncated), infos


WORDS = r"was given .*, which is {} environments in one batch, as in Isaac Lab.*VectorEnv"


MADE = [
    lambda env: env,
    gym.wrappers.OrderEnforcing,
    lambda env: gym.wrappers.TimeLimit(env, 3),
    lambda env: gym.wrappers.TransformReward(gym.wrappers.OrderEnforcing(env), lambda x: 2 * x),
]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("inner", [simulator, IsaacLab])
@pytest.mark.parametrize("made", MADE)
def test_batches_are_refused_when_they_are_wrapped(count, inner, made):
    torchrl = pytest.importorskip("arrayferry_gym.torchrl", exc_type=ImportError)
    env = made(inner(count))
    adapters = [ArrayConversion, JaxToTorch, vector.ArrayConversion, vector.JaxToNumpy]
    normalised = [wrappers.NormalizeObservation, wrappers.NormalizeReward]
    for refused in (*adapters, *normalised, torchrl.TorchRLEnv):
        with pytest.raises(TypeError, match=WORDS.format(count)) as caught:
            refused(env)
        assert refused not in adapters or str(caught.value).startswith(refused.__name__)
        assert "arrayferry_gym.from_simulator(env)" in str(caught.value)


@pytest.mark.parametrize("stated", ["one", "batch"])
def test_batches_that_state_other_spaces_are_refused_when_they_show(stated):
    env = ArrayConversion(simulator(4, stated), target_xp="numpy")
    with pytest.raises(TypeError, match=WORDS.format(4)):
        play(env)


def play(env):
    env.reset()
    env.step(env.action_space.sample())


def test_simulators_of_other_kinds():
    for adapter in (ArrayConversion, vector.ArrayConversion):
        with pytest.raises(TypeError, match=WORDS.format(4)):
            adapter(Plain())
    with pytest.raises(TypeError, match=r"if it is one\. A batch of several, as in Isaac Lab"):
        vector.ArrayConversion(simulator(4, "one"))


class Single(gym.Env):
    """One environment with a number of environments for some purpose of its own."""

    action_space = spaces.Discrete(2)

    def __init__(self, num_envs, shape=(3,), **attributes):
        self.num_envs = num_envs
        self.observation_space = spaces.Box(-1, 1, shape, np.float32)
        vars(self).update(attributes)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        observation = np.zeros(self.observation_space.shape, np.float32)
        return observation, 1.0, np.bool_(False), np.array(False), {}


@pytest.mark.parametrize(
    "env",
    [
        Single(1),
        Single(4),
        Single(3),  # as many as there are numbers in an observation
        Single(2, (2, 3)),
        Single(1, (1, 3)),
        Single(None),
        Single(0),
        Single("4"),
        Single(1, (1, 3), single_observation_space=spaces.Box(-1, 1, (1, 3), np.float32)),
        Single(4, (4, 3), single_observation_space=spaces.Box(-1, 1, (4, 3), np.float32)),
        Single(4, single_observation_space=PART, single_action_space=spaces.Discrete(2)),
        gym.wrappers.FlattenObservation(Single(2, (2, 3))),
        First(simulator(1)),
        First(simulator(4)),
        gym.make("CartPole-v1"),
    ],
)
def test_single_environments_go_on(env):
    env = wrappers.ClipReward(ArrayConversion(env, target_xp="torch"), -1, 1)
    observation, _ = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape
    observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
    assert isinstance(observation, torch.Tensor)
    assert terminated is truncated is False
