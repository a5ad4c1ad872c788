"""The conformance kit for bridges: right ones pass, and each planted fault is caught by the test that is for it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import wrong_bridges
from bridge_forms import LeavesResets
from cases import first_of_each
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from arrayferry_gym import vector
from arrayferry_gym.functional import repeat_action
from arrayferry_gym.testing import LIMIT, BridgeContract, Probe


class TestServedInNumPy(BridgeContract):
    def make(self):
        return Probe().make_vec(self.num_envs, autoreset_mode="SameStep")


class TestServedInTorch(BridgeContract):
    num_envs = 5

    def make(self):
        return Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="SameStep")


class TestServedInJax(BridgeContract):
    num_envs = 1

    def make(self):
        return Probe().make_vec(self.num_envs, xp="jax", autoreset_mode="SameStep")


class TestDisabled(LeavesResets):
    """The reset is left to the trainer."""

    def make(self):
        return Probe().make_vec(self.num_envs, xp="torch", autoreset_mode="Disabled")


@pytest.mark.long
class TestAdaptersAroundGymnasium(BridgeContract):
    def make(self):
        makes = [lambda: repeat_action(Probe(), 1).make(xp="jax")] * self.num_envs
        envs = SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP)
        return vector.ArrayConversion(envs, env_xp="jax", target_xp="numpy")


# A game of two, who terminate together.


class Game:
    def __init__(self, n):
        self.n, self.env = n, Probe().make(max_episode_steps=None)

    def reset(self, *, seed=None):
        return np.stack([self.env.reset(seed=seed)[0]] * self.n), {}

    def step(self, actions):
        observation, reward, *_ = self.env.step(0)
        over = np.array([1 in actions] * self.n)
        late = np.array([observation[1] >= LIMIT] * self.n)
        final = np.stack([observation] * self.n)
        if over[0] or late[0]:
            observation, _ = self.env.reset()
        return (
            np.stack([observation] * self.n),
            reward + actions / 2,
            over,
            late,
            {"final_obs": final},
        )


class TestPlayersOfOneGame(BridgeContract):
    num_envs = 2
    together = True

    def make(self):
        return Game(self.num_envs)

    def spaces(self, bridge):
        return None, None


# A bridge with one fault.


class Faulty:
    """A bridge in NumPy, right but for one fault."""

    def __init__(self, n, fault):
        self.n, self.fault, self.rng = n, fault, np.random.default_rng()
        self.single_observation_space = spaces.Box(0, LIMIT, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3, start=int(fault == "the space of actions"))
        self.buffer = np.zeros((n, 2), np.float32)

    def drawn(self, n):
        if self.fault == "all first states alike":
            return np.full(n, self.rng.random(dtype=np.float32))
        return self.rng.random(n, dtype=np.float32)

    def reset(self, *, seed=None):
        if seed is not None and self.fault != "the seed is ignored":
            self.rng = np.random.default_rng(seed)
        self.start = self.drawn(self.n)
        self.count, self.elapsed = np.zeros(self.n, int), np.zeros(self.n, int)
        return self.seen(), {}

    def seen(self):
        observation = np.stack([self.start, self.count], axis=1).astype(np.float32)
        if self.fault == "observations are overwritten":
            self.buffer[...] = observation
            return self.buffer
        return observation

    def step(self, actions):
        fault, before = self.fault, self.seen().copy()
        if fault == "actions are swapped":
            actions = actions[::-1]
        self.count, self.elapsed = self.count + 1, self.elapsed + 1
        reward, terminated = self.count + actions / 2, actions == 1
        truncated = self.elapsed >= LIMIT
        ended, final = terminated | truncated, np.array(self.seen())
        if fault == "the reward of the other player":
            reward = -reward
        if fault == "the reward of the step before":
            reward = reward - 1
        if fault == "the limit is a termination":
            terminated = terminated | truncated
        if fault == "a termination is a truncation":
            truncated = truncated | terminated
        if fault == "exclusive flags":
            truncated = truncated & ~terminated
        if fault == "only truncated":
            terminated = terminated & ~truncated
        if fault == "all end at once":
            ended[:] = ended.any()
            terminated = terminated | (ended & ~truncated)
        if fault == "an axis too many":
            reward = reward[:, None]
        if fault != "the next episode begins alike":
            self.start = np.where(ended, self.drawn(self.n), self.start)
        self.count = np.where(ended, int(fault == "the first state is a later one"), self.count)
        if fault != "the limit counts on":
            self.elapsed = np.where(ended, 0, self.elapsed)
        observation = self.seen()
        if fault == "the final observation is the first of the next":
            final = observation
        if fault == "the final observation is that before":
            final = before
        if fault == "no final observation":
            final = None
        if fault == "zeros as final observation":
            final = np.zeros_like(final)
        return observation, reward, terminated, truncated, {"final_obs": final}


def found(fault, **attributes):
    """Return what is said of a bridge with a fault, or of a class of bridges."""

    class Contract(BridgeContract):
        def make(self):
            return fault(self.num_envs) if isinstance(fault, type) else Faulty(self.num_envs, fault)

    for name, value in attributes.items():
        setattr(Contract, name, value)
    return failure(Contract)


def failure(contract):
    try:
        contract().test_the_bridge_is_right()
    except AssertionError as error:
        return str(error)
    return ""


# a part of the message of each fault
FAULTS = {
    "the space of actions": r"not Discrete\(3\)",
    "an axis too many": "reward has the shape",
    "all first states alike": "all environments begin alike",
    "the first state is a later one": "whose count must be 0",
    "actions are swapped": "the reward is|depend on the actions of environment 2",
    "the reward of the other player": "the reward is",
    "the reward of the step before": "the reward is",
    "a termination is a truncation": "truncated is True, not False",
    "all end at once": "terminated is True, not False",
    "the limit is a termination": "terminated is True, not False.*no termination",
    "exclusive flags": "truncated is False, not True",
    "only truncated": "terminated is False, not True",
    "the final observation is the first of the next": "final_obs is the observation that is returned",
    "the final observation is that before": "final_obs is the one before",
    "no final observation": "without 'final_obs'",
    "zeros as final observation": "all zeros",
    "the next episode begins alike": "began in only",
    "the limit counts on": "truncated is True",
    "the seed is ignored": "same seed.* gave other results",
    "observations are overwritten": "was overwritten",
}


def test_the_bridge_without_fault_passes():
    assert found(None) == found(wrong_bridges.Right) == ""
    assert found("exclusive flags", exclusive=True) == ""
    assert "truncated is True" in found(None, exclusive=True)
    assert "terminated is False" in found("only truncated", exclusive=True)


# bridges of others, and a part of the message of their fault
WRONG = {
    wrong_bridges.SeedZeroIsNone: "same seed.* gave other results",
    wrong_bridges.SeedsOfEpisodes: "began in only",
    wrong_bridges.LaterEpisodesOfTheirOwnSeed: "same seed.* gave other results",
    wrong_bridges.SeedsOnce: "same seed.* gave other results",
    wrong_bridges.ResetsWithoutASeedAreRandom: "same seed.* gave other results",
    wrong_bridges.TwoStarts: "resets without a seed began in only",
    wrong_bridges.MarksAndResetsLater: "same seed.* gave other results",
    wrong_bridges.Cached: "made, stepped and closed",
    wrong_bridges.GlobalGenerator: "made, stepped and closed",
    wrong_bridges.ActionsInPlace: "changed the array of actions",
    wrong_bridges.FinalsInDouble: "final_obs is float64",
    wrong_bridges.BoundsOfRunningEpisodes: "final_obs is outside of",
    wrong_bridges.HalfPrecision: "rounded to float16",
    wrong_bridges.FlagsOfInfos: "truncated is object",
    wrong_bridges.SqueezesOne: "has 2 rows, not 1",
    wrong_bridges.HalfPrecisionRewards: "reward is float16",
    wrong_bridges.ResetsIntoResults: "was overwritten by a later step or reset",
    wrong_bridges.OneEngine: "made, stepped and closed",
    wrong_bridges.StateIsShown: "what the agent writes",
}


@pytest.mark.parametrize(
    "fault",
    first_of_each({**FAULTS, **WRONG}, lambda fault: {**FAULTS, **WRONG}[fault]),
    ids=lambda x: getattr(x, "__name__", x),
)
def test_each_fault_is_found(fault):
    told = found(fault)
    assert re.search({**FAULTS, **WRONG}[fault], told), told


@pytest.mark.long
def test_a_count_that_overflows_is_found_by_longer_runs():
    assert "gave other results" in found(wrong_bridges.CountsInBytes, steps=264)


def test_a_game_of_no_other_size_passes():
    class Fixed(BridgeContract):
        def make(self):
            return wrong_bridges.Right(3)

    assert failure(Fixed) == ""


def test_a_bridge_must_be_made():
    with pytest.raises(NotImplementedError, match=r"a method make\(\) that returns the bridge"):
        BridgeContract().test_the_bridge_is_right()
