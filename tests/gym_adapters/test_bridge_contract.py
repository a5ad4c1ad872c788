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

TESTS = [name for name in dir(BridgeContract) if name.startswith("test_")]


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


def failing(fault, **attributes):
    """Return which tests a bridge with a fault, or a class of bridges, fails, with their messages."""

    class Contract(BridgeContract):
        def make(self):
            return fault(self.num_envs) if isinstance(fault, type) else Faulty(self.num_envs, fault)

    for name, value in attributes.items():
        setattr(Contract, name, value)
    return failures(Contract)


def failures(contract):
    failed = {}
    for name in TESTS:
        try:
            getattr(contract(), name)()
        except AssertionError as error:
            failed[name] = str(error)
    return failed


# the test that is for a fault, and a part of its message
FAULTS = {
    "the space of actions": ("test_spaces_and_dtypes_agree", r"not Discrete\(3\)"),
    "an axis too many": ("test_rewards_and_flags_have_their_dtypes", "reward has the shape"),
    "all first states alike": ("test_episodes_begin_at_the_beginning", "environments begin alike"),
    "the first state is a later one": ("test_each_episode_is_new", "not of a first state"),
    "actions are swapped": ("test_each_action_reaches_its_environment", "the reward is"),
    "the reward of the other player": ("test_each_action_reaches_its_environment", "this player"),
    "the reward of the step before": ("test_each_action_reaches_its_environment", "of this step"),
    "a termination is a truncation": ("test_termination_is_no_truncation", r"\(True, True\)"),
    "all end at once": ("test_termination_is_no_truncation", "row 0, step 2"),
    "the limit is a termination": ("test_the_time_limit_is_no_termination", "no termination"),
    "exclusive flags": ("test_both_at_once", r"must be \(True, True\)"),
    "only truncated": ("test_both_at_once", r"must be \(True, True\)"),
    "the final observation is the first of the next": (
        "test_final_observations_are_of_the_last_state",
        "the first observation of the next episode",
    ),
    "the final observation is that before": (
        "test_final_observations_are_of_the_last_state",
        "the observation before the last step",
    ),
    "no final observation": ("test_final_observations_are_of_the_last_state", "has no final"),
    "zeros as final observation": (
        "test_final_observations_are_of_the_last_state",
        "of the state after",
    ),
    "the next episode begins alike": ("test_each_episode_is_new", "begins like the last"),
    "the limit counts on": ("test_later_episodes_count_anew", "truncated"),
    "the seed is ignored": ("test_seeds_repeat", "gave other episodes"),
    "observations are overwritten": ("test_results_are_not_overwritten", "has overwritten"),
}


def test_the_bridge_without_fault_passes():
    assert failing(None) == failing(wrong_bridges.Right) == {}
    assert failing("exclusive flags", exclusive=True) == {}
    assert list(failing(None, exclusive=True)) == ["test_a_long_game", "test_both_at_once"]
    assert list(failing("only truncated", exclusive=True)) == [
        "test_a_long_game",
        "test_both_at_once",
    ]


# bridges of others, and a part of the message of the test that is for their fault
WRONG = {
    wrong_bridges.SeedZeroIsNone: ("test_seeds_repeat", "the seed 0 gave other"),
    wrong_bridges.SeedsOfEpisodes: ("test_each_episode_is_new", "episodes begin alike"),
    wrong_bridges.LaterEpisodesOfTheirOwnSeed: ("test_seeds_repeat", "same later episodes|later episodes differ"),
    wrong_bridges.SeedsOnce: ("test_seeds_repeat", "later episodes differ"),
    wrong_bridges.ResetsWithoutASeedAreRandom: ("test_seeds_repeat", "after a reset without a seed"),
    wrong_bridges.TwoStarts: ("test_a_reset_begins_anew", "reset number 3, episodes begin as before"),
    wrong_bridges.MarksAndResetsLater: ("test_a_reset_begins_anew", "the observation is"),
    wrong_bridges.Cached: ("test_bridges_share_nothing", "the observation is|flags|another bridge"),
    wrong_bridges.GlobalGenerator: ("test_bridges_share_nothing", "another bridge has changed"),
    wrong_bridges.ActionsInPlace: (
        "test_actions_and_results_belong_to_the_trainer",
        "has changed the array of actions",
    ),
    wrong_bridges.FinalsInDouble: ("test_spaces_and_dtypes_agree", "float64, not float32"),
    wrong_bridges.BoundsOfRunningEpisodes: ("test_spaces_and_dtypes_agree", "is not in the space"),
    wrong_bridges.HalfPrecision: ("test_each_episode_is_new", "more than float16"),
    wrong_bridges.FlagsOfInfos: ("test_rewards_and_flags_have_their_dtypes", "step 4, truncated is object"),
    wrong_bridges.SqueezesOne: ("test_one_row_is_a_batch", "shape"),
    wrong_bridges.CountsInBytes: ("test_a_long_game", "step"),
    wrong_bridges.HalfPrecisionRewards: ("test_rewards_and_flags_have_their_dtypes", "rewards are float16"),
    wrong_bridges.ResetsIntoResults: ("test_results_are_not_overwritten", "or reset has overwritten"),
    wrong_bridges.OneEngine: ("test_bridges_share_nothing", "the reward is"),
    wrong_bridges.StateIsShown: ("test_actions_and_results_belong_to_the_trainer", "the observation is|reward is"),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    first_of_each({**FAULTS, **WRONG}, lambda fault: {**FAULTS, **WRONG}[fault][0]),
    ids=lambda x: getattr(x, "__name__", x),
)
def test_each_fault_is_caught(fault):
    name, message = {**FAULTS, **WRONG}[fault]
    failed = failing(fault)
    assert name in failed
    assert re.search(message, failed[name]), failed[name]


def test_a_game_of_no_other_size_passes():
    class Fixed(BridgeContract):
        def make(self):
            return wrong_bridges.Right(3)

    assert failures(Fixed) == {}


def test_every_test_is_for_a_fault():
    found = {**FAULTS, **WRONG}.values()
    assert {name for name, _ in found} == set(TESTS)


def test_a_bridge_must_be_made():
    with pytest.raises(NotImplementedError, match="make"):
        BridgeContract().test_a_long_game()
