"""Batches of tensors that are no `VectorEnv`, as those of simulators: refused, and single environments that look alike are not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arrayferry_gym import ArrayConversion, JaxToTorch, vector, wrappers

PART = spaces.Box(-1, 1, (3,), np.float32)


class Simulator(gym.Env):
    """A batch, as Isaac Lab and ManiSkill have it.

    Args:
        num_envs: how many environments there are.
        single: the space of one.
        stated: which spaces it states: both, that of one environment as its own, or that of the batch alone.
    """

    metadata = {"render_modes": []}

    def __init__(self, num_envs, single=PART, stated="both"):
        self.num_envs, self.one = num_envs, single
        self.observation_space = single if stated == "one" else batch_space(single, num_envs)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        if stated == "both":
            self.single_observation_space, self.single_action_space = single, self.action_space
            self.action_space = batch_space(self.action_space, num_envs)

    def _observed(self):
        batch = batch_space(self.one, self.num_envs)
        if isinstance(batch, spaces.Dict):
            return {key: torch.zeros(part.shape) for key, part in batch.items()}
        return torch.zeros(batch.shape)

    def reset(self, *, seed=None, options=None):
        return self._observed(), {}

    def step(self, action):
        no = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._observed(), torch.zeros(self.num_envs), no, no, {}


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
        *results, infos = self.env.step(action[None])
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
@pytest.mark.parametrize("single", [PART, spaces.Dict(policy=PART, critic=PART)])
@pytest.mark.parametrize("made", MADE)
def test_batches_are_refused_when_they_are_wrapped(count, single, made):
    env = made(Simulator(count, single))
    for adapter in (ArrayConversion, JaxToTorch, vector.ArrayConversion, vector.JaxToNumpy):
        with pytest.raises(TypeError, match=WORDS.format(count)) as caught:
            adapter(env)
        assert str(caught.value).startswith(adapter.__name__)
    for other in (wrappers.NormalizeObservation, wrappers.NormalizeReward):
        with pytest.raises(TypeError, match=WORDS.format(count)):
            other(env)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("single", [PART, spaces.Dict(policy=PART, critic=PART)])
@pytest.mark.parametrize("made", MADE)
def test_batches_are_refused_by_the_bridge_to_torchrl(count, single, made):
    pytest.importorskip("torchrl")
    from arrayferry_gym.torchrl import TorchRLEnv

    with pytest.raises(TypeError, match=WORDS.format(count)):
        TorchRLEnv(made(Simulator(count, single)))


@pytest.mark.parametrize("stated", ["one", "batch"])
def test_batches_that_state_other_spaces_are_refused_when_they_show(stated):
    env = ArrayConversion(Simulator(4, stated=stated), target_xp="numpy")
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
        vector.ArrayConversion(Simulator(4, stated="one"))


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
        First(Simulator(1)),
        First(Simulator(4)),
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
