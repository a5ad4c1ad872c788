"""Copies and pickles of what is around an environment: they go on if its state goes with them, else they need a reset."""

import copy
import inspect
import pickle

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from kernel_cases import Steps

import arrayferry as af
from arrayferry_gym import ArrayConversion, NumpyToTorch, vector, wrappers
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.wrappers import vector as vector_wrappers

TWINS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
    "cloudpickle": lambda env: cloudpickle.loads(cloudpickle.dumps(env)),
}


@pytest.fixture(params=TWINS)
def twin(request):
    return TWINS[request.param]


class Anew(Steps, gym.utils.EzPickle):
    """An environment whose copies are made by the constructor, as those of MuJoCo, Atari and Box2D."""

    def __init__(self, number=9):
        super().__init__(number)
        gym.utils.EzPickle.__init__(self, number)
        self.sum = self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.step(0.0)[0], {}  # as LunarLander does


class Whole(Anew):
    """One that says itself what is stored of it."""

    def __getstate__(self):
        return {**vars(self)}

    def __setstate__(self, state):
        vars(self).update(state)


def batch(make):
    return SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)


AROUND = {
    "adapter": NumpyToTorch,
    "wrapper": wrappers.NormalizeReward,
    "both": lambda env: ArrayConversion(wrappers.TimeAwareObservation(gym.wrappers.TimeLimit(env, 20))),
    "theirs around ours": lambda env: gym.wrappers.OrderEnforcing(NumpyToTorch(env)),
}  # fmt: skip
BATCHES = {
    "adapter": vector.NumpyToTorch,
    "wrapper": vector_wrappers.NormalizeObservation,
    "both": lambda envs: vector.NumpyToTorch(vector_wrappers.RecordEpisodeStatistics(envs)),
    "SB3": SB3VecEnv,
}


def stepped(env):
    """Take a step, and return the observation in NumPy."""
    action = 1.0 if isinstance(env, gym.Env) else np.ones(2, np.float32)
    return np.asarray(af.convert(env.step(action)[0], "numpy"))


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_copies_of_environments_that_begin_anew_ask_for_a_reset(around, twin):
    env = around(Anew())
    env.reset(seed=1)
    stepped(env)
    for again in (twin(env), twin(twin(env))):
        with pytest.raises(ResetNeeded, match=r"reset\(\): Anew is an EzPickle, so a copy"):
            stepped(again)
        assert [*inspect.signature(again.unwrapped.reset).parameters] == ["seed", "options"]
        again.reset(seed=1)
        stepped(again), stepped(again)
    stepped(env)  # the original goes on
    stepped(copy.copy(env))  # so does a shallow copy, which has the same environment


@pytest.mark.parametrize("around", BATCHES.values(), ids=BATCHES)
def test_copies_of_batches_with_such_environments(around, twin):
    envs = around(batch(Anew))
    envs.reset()
    stepped(envs)
    again = twin(envs)
    with pytest.raises(ResetNeeded, match=r"envs\[0\].Anew is an EzPickle, so a copy"):
        stepped(again)
    again.reset()
    stepped(again), stepped(envs), stepped(copy.copy(envs))


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("make", [Whole, Steps])
def test_copies_of_others_go_on(around, make, twin):
    env = around(make(9))
    env.reset(seed=1)
    stepped(env)
    again = twin(env)
    np.testing.assert_array_equal(stepped(again), stepped(env))


@pytest.mark.parametrize("around", [NumpyToTorch, wrappers.NormalizeReward])
def test_copies_before_the_first_reset_go_on(around, twin):
    stepped(twin(around(Anew())))


@pytest.mark.parametrize(
    ("package", "env_id"), [("mujoco", "InvertedPendulum-v5"), ("ale_py", "ALE/Pong-v5")]
)
def test_copies_of_real_environments(package, env_id, twin):
    gym.register_envs(pytest.importorskip(package))
    env = NumpyToTorch(wrappers.NormalizeReward(gym.make(env_id)))
    env.reset(seed=1)
    env.step(env.action_space.sample())
    again = twin(env)
    with pytest.raises(ResetNeeded, match="a copy or pickle of it loses its episode"):
        again.step(again.action_space.sample())
    again.reset(seed=1)
    again.step(again.action_space.sample())
