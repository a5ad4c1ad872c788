"""Environments of Gym before 0.26, whose `reset` returns the observation alone: told at the first reset."""

import gymnasium as gym
import numpy as np
import pytest

from arrayferry_envs import evaluate
from arrayferry_gym import NumpyToTorch, vector, wrappers
from arrayferry_gym.extending import checked_reset
from arrayferry_gym.sb3 import SB3VecEnv

OBSERVATIONS = {
    "two numbers": np.zeros(2, "f4"),
    "two keys": {"a": np.zeros(1), "b": np.ones(1)},
    "two parts": (np.zeros(1), np.ones(1)),
    "a number": 3,
    "three numbers": np.zeros(3, "f4"),
}


class Old(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def __init__(self, observation):
        self.observation = observation

    def reset(self, **options):
        return self.observation


class Batch(gym.vector.VectorEnv):
    num_envs, metadata = 2, {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    single_observation_space, single_action_space = Old.observation_space, Old.action_space
    observation_space = gym.spaces.Box(-1, 1, (2, 2))
    action_space = gym.spaces.MultiDiscrete([2, 2])

    def reset(self, **options):
        return np.zeros((2, 2), "f4")


def policy(params, observation, key):
    return 0, {}


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
@pytest.mark.parametrize("use", [
    lambda env: NumpyToTorch(env).reset(),
    lambda env: wrappers.NormalizeObservation(env).reset(),
    lambda env: evaluate(env, policy, policy_xp="numpy"),
])  # fmt: skip
def test_single_environments(use, observation):
    with pytest.raises(TypeError, match="but observations and infos are needed"):
        use(Old(observation))


@pytest.mark.parametrize("use", [
    lambda envs: vector.NumpyToTorch(envs).reset(),
    lambda envs: wrappers.vector.NormalizeObservation(envs).reset(),
    lambda envs: wrappers.vector.RecordEpisodeStatistics(envs).reset(),
    lambda envs: SB3VecEnv(envs).reset(),
    lambda envs: evaluate(envs, policy, policy_xp="numpy"),
])  # fmt: skip
def test_batches(use):
    with pytest.raises(TypeError, match="GymV21Environment-v0"):
        use(Batch())


def test_what_a_reset_returns():
    for results in ((np.zeros(2), {}), [np.zeros(2), {}], (np.zeros(2), [{}, {}])):
        assert checked_reset("an environment", results)[1] is results[1]
    with pytest.raises(TypeError, match="returned a float"):
        checked_reset("an environment", 0.5)
