"""The conformance kit for bridges: right ones pass, and each planted fault is caught by the test that is for it."""

import re

import numpy as np
import pytest
import wrong_bridges
from cases import quick_if

from arrayferry_audit import BridgeContract, Probe


class TestServedInJax(BridgeContract):
    num_envs = 1

    def make(self):
        return Probe().make_vec(self.num_envs, xp="jax", autoreset_mode="SameStep")


class Changed(wrong_bridges.Right):
    """A right bridge, whose results are changed by a function."""

    def __init__(self, n, change):
        super().__init__(n)
        self.change = change

    def step(self, actions):
        *results, infos = super().step(actions)
        *results, final = self.change(*results, infos["final_obs"])
        return *results, {"final_obs": final}


def found(make, **attributes):
    """Return what is said of a bridge, which a function makes for a number of rows."""
    attributes["make"] = lambda self: make(self.num_envs)
    try:
        type("Contract", (BridgeContract,), attributes)().test_the_bridge_is_right()
    except AssertionError as error:
        return str(error)
    return ""


# changes of the observations, rewards, both flags and last observations, and a part of the message
CHANGES = {
    "an axis too many": (lambda x, r, *others: (x, r[:, None], *others), "reward has the shape"),
    "the reward of the other player": (lambda x, r, *others: (x, -r, *others), "the reward is"),
    "the reward of the step before": (lambda x, r, *others: (x, r - 1, *others), "the reward is"),
    "a termination is a truncation": (lambda x, r, t, u, last: (x, r, t, u | t, last), "truncated is True, not False"),
    "all end at once": (lambda x, r, t, u, last: (x, r, t | t.any(), u, last), "terminated is True, not False"),
    "the limit is a termination": (lambda x, r, t, u, last: (x, r, t | u, u, last), "terminated is True, not False.*set truncated"),
    "exclusive flags": (lambda x, r, t, u, last: (x, r, t, u & ~t, last), "truncated is False, not True"),
    "only truncated": (lambda x, r, t, u, last: (x, r, t & ~u, u, last), "terminated is False, not True"),
    "no final observation": (lambda *results: (*results[:4], None), "without 'final_obs'"),
    "zeros as final observation": (lambda *results: (*results[:4], 0 * results[4]), "all zeros"),
    "final observations in double": (lambda *results: (*results[:4], results[4].astype(float)), "final_obs is float64"),
    "rewards in half precision": (lambda x, r, *others: (x, r.astype(np.float16), *others), "reward is of dtype float16"),
    "flags of infos, which have them at ends only": (
        lambda x, r, t, u, last: (x, r, t, np.where(u, True, None) if u.any() else u, last), "truncated is of dtype object"),
}  # fmt: skip


def changed(name):
    return lambda n: Changed(n, CHANGES[name][0])


def test_the_bridge_without_fault_passes():
    assert found(wrong_bridges.Right) == ""
    assert found(changed("exclusive flags"), exclusive=True) == ""
    assert "truncated is True" in found(wrong_bridges.Right, exclusive=True)
    assert "terminated is False" in found(changed("only truncated"), exclusive=True)


# bridges of others, and a part of the message of their fault
WRONG = {
    wrong_bridges.ActionsFromOne: r"not Discrete\(3\)",
    wrong_bridges.BeginsLate: "its second number must be 0",
    wrong_bridges.SwapsActions: "the reward is|depend on the actions of environment 2",
    wrong_bridges.SeedZeroIsNone: "same seed.* gave other results",
    wrong_bridges.SeedsOfEpisodes: "different observations",
    wrong_bridges.LaterEpisodesOfTheirOwnSeed: "same seed.* gave other results",
    wrong_bridges.ResetsWithoutASeedAreRandom: "same seed.* gave other results",
    wrong_bridges.TwoStarts: "resets without a seed returned only",
    wrong_bridges.MarksAndResetsLater: "same seed.* gave other results",
    wrong_bridges.GlobalGenerator: "made, stepped and closed",
    wrong_bridges.ActionsInPlace: "changed the array of actions",
    wrong_bridges.BoundsOfRunningEpisodes: "final_obs is outside of",
    wrong_bridges.HalfPrecision: "rounded to float16",
    wrong_bridges.SqueezesOne: "has 2 rows, but needs 1",
    wrong_bridges.ResetsIntoResults: "was overwritten by a later step or reset",
    wrong_bridges.OneEngine: "made, stepped and closed",
    wrong_bridges.StateIsShown: "what the agent writes",
}


FAULTS = {
    **{name: (changed(name), message) for name, (_, message) in CHANGES.items()},
    **{cls.__name__: (cls, message) for cls, message in WRONG.items()},
}


SIMILAR = {
    "the reward of the step before", "no final observation", "zeros as final observation", "SeedZeroIsNone",
    "LaterEpisodesOfTheirOwnSeed", "ResetsWithoutASeedAreRandom", "TwoStarts", "final observations in double",
    "BoundsOfRunningEpisodes", "HalfPrecision", "rewards in half precision", "flags of infos, which have them at ends only",
    "ResetsIntoResults", "OneEngine",
}  # fmt: skip
"""Faults that are like others here, or that `check_vector_env` finds in its own tests."""


@pytest.mark.parametrize("fault", quick_if(FAULTS, lambda fault: fault not in SIMILAR))
def test_each_fault_is_found(fault):
    make, message = FAULTS[fault]
    told = found(make)
    assert re.search(message, told), told


@pytest.mark.long
def test_a_count_that_overflows_is_found_by_longer_runs():
    assert "gave other results" in found(wrong_bridges.CountsInBytes, steps=264)


def test_a_game_of_no_other_size_passes():
    assert found(lambda n: wrong_bridges.Right(3)) == ""


def test_a_bridge_must_be_made():
    with pytest.raises(NotImplementedError, match=r"a method make\(\) that returns the bridge"):
        BridgeContract().test_the_bridge_is_right()
