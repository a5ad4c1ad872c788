"""Tabular environments: their tables are Gymnasium's, and what is drawn has the table's probabilities in each library."""

import math

import gymnasium as gym
import numpy as np
import pytest
from arrayferry_classic import Blackjack, CliffWalking, FrozenLake, TabularEnv, Taxi, Transitions
from arrayferry_classic.table import TabularState
from gymnasium import spaces
from gymnasium.envs.toy_text import BlackjackEnv, CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

import arrayferry as af

LIBRARIES = ("numpy", "torch", "jax", "array_api_strict")
NEWEST = tuple(map(int, gym.__version__.split(".")[:2])) >= (1, 3)


def begun(envs, seed=1):
    """Reset environments, and return them."""
    envs.reset(seed=seed)
    return envs


PAIRS = {
    "FrozenLake": (FrozenLake, FrozenLakeEnv, {}),
    "FrozenLake 8x8": (FrozenLake, FrozenLakeEnv, {"map_name": "8x8"}),
    "FrozenLake, own map": (FrozenLake, FrozenLakeEnv, {"desc": ["SFFH", "FHSF", "HFFG"]}),
    "FrozenLake, not slippery": (FrozenLake, FrozenLakeEnv, {"is_slippery": False}),
    "CliffWalking": (CliffWalking, CliffWalkingEnv, {}),
    "Taxi": (Taxi, TaxiEnv, {}),
}
if NEWEST:
    rates = {"success_rate": 0.7, "reward_schedule": (5, -2, -1)}
    PAIRS |= {
        "FrozenLake, rates": (FrozenLake, FrozenLakeEnv, rates),
        "CliffWalking, slippery": (CliffWalking, CliffWalkingEnv, {"is_slippery": True}),
        "Taxi, rainy": (Taxi, TaxiEnv, {"is_rainy": True, "rainy_probability": 0.7}),
    }


def outcomes(state_of_ours, action, table):
    """Return {(next state, reward, terminated): probability} of one cell of our table."""
    found = {}
    columns = (column[state_of_ours, action].tolist() for column in table[:4])
    for p, *outcome in zip(*columns, strict=True):
        if p:
            found[tuple(outcome)] = found.get(tuple(outcome), 0) + p
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_tables_are_those_of_gymnasium(name):
    ours, theirs, options = PAIRS[name]
    ours, theirs = ours(**options), theirs(**options)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    table = ours.default_params
    for state, actions in theirs.P.items():
        for action, rows in actions.items():
            expected = {}
            for p, after, reward, terminated in rows:
                key = int(after), float(reward), bool(terminated)
                expected[key] = expected.get(key, 0) + p
            assert outcomes(state, action, table) == pytest.approx(expected)
    starts = np.bincount(table.starts, minlength=len(theirs.P)) / len(table.starts)
    np.testing.assert_allclose(starts, theirs.initial_state_distrib)


def test_limits_are_those_of_gymnasium():
    for name in ("FrozenLake", "FrozenLake8x8", "CliffWalking", "Taxi", "Blackjack"):
        newest = max(
            spec.version
            for spec in gym.registry.values()
            if spec.name == name and not spec.namespace
        )
        limit = gym.spec(f"{name}-v{newest}").max_episode_steps
        assert gym.spec(f"arrayferry/{name}-v0").max_episode_steps == limit
    assert FrozenLake(map_name="8x8").max_episode_steps == 200
    assert FrozenLake(desc="SFG").observation_space.n == 3  # rows of one letter


def is_near(counts, expected, free, error=1e-6):
    """Tell whether counts are as expected, wrongly denied in one of 1 / `error` trials.

    The statistic of Pearson, with the bound of Laurent and Massart, 2000, on chi-squared tails.
    """
    statistic, x = ((counts - expected) ** 2 / expected).sum(), math.log(1 / error)
    return statistic <= free + 2 * math.sqrt(free * x) + 2 * x


def fits(counts, probabilities, error=1e-6):
    """Tell whether counts have these probabilities, wrongly denied in one of 1 / `error` trials."""
    counts, expected = np.asarray(counts, float), np.asarray(probabilities) * np.sum(counts)
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], expected[expected > 0]
    return is_near(counts, expected, len(expected) - 1, error)


@pytest.mark.parametrize("xp", LIBRARIES)
def test_outcomes_have_their_probabilities(xp):
    n = 20_000
    env = Taxi(is_rainy=True, rainy_probability=0.5)
    envs = env.make_vec(n, xp=xp, autoreset_mode="Disabled")
    first, infos = envs.reset(seed=3)
    table, first = env.default_params, af.convert(first, "numpy")
    starts = np.bincount(first, minlength=500)
    assert fits(starts, np.bincount(table.starts, minlength=500) / 300)
    assert af.convert(infos["prob"], "numpy").tolist() == [1.0] * n
    state = np.full(n, ((2 * 5 + 2) * 5 + 1) * 4 + 3, np.int32)
    ones = np.ones(n, np.float32)
    envs.reset(options={"state": af.convert(type(envs.state)(state, ones), xp)})
    after, rewards, _, _, infos = af.convert(envs.step(af.convert(np.full(n, 2), xp)), "numpy")
    expected = {key[0]: p for key, p in outcomes(state[0], 2, table).items()}
    assert fits([np.sum(after == number) for number in expected], list(expected.values()))
    assert np.isin(after, list(expected)).all()
    assert set(rewards.tolist()) == {-1.0}
    np.testing.assert_allclose(infos["prob"], [expected[x] for x in after.tolist()])


@pytest.mark.parametrize("xp", LIBRARIES)
def test_masks_are_those_of_gymnasium(xp):
    theirs = TaxiEnv()
    states = np.arange(500, dtype=np.int32)
    expected = np.array([theirs.action_mask(state) for state in states])
    for env in (Taxi(), Taxi(masks=True)):
        envs = begun(env.make_vec(500, xp=xp))
        ones = np.ones(500, np.float32)
        seen, infos = envs.reset(options={"state": af.convert(type(envs.state)(states, ones), xp)})
        mask = af.convert(infos["action_mask"], "numpy")
        assert mask.dtype == np.int8
        np.testing.assert_array_equal(mask, expected)
        if env.masks:
            np.testing.assert_array_equal(af.convert(seen["action_mask"], "numpy"), expected)
            seen = seen["observation"]
        np.testing.assert_array_equal(af.convert(seen, "numpy"), states)


def test_a_state_that_nothing_changes_allows_all_actions():
    envs = begun(FrozenLake(is_slippery=False).make_vec(16))
    state = type(envs.state)(np.arange(16, dtype=np.int32), np.ones(16, np.float32))
    mask = envs.reset(options={"state": state})[1]["action_mask"]
    assert mask[0].tolist() == [0, 1, 1, 0]
    assert mask[5].tolist() == mask[15].tolist() == [1, 1, 1, 1]
    assert envs.single_action_space.sample(mask[0]) in (1, 2)


@pytest.mark.parametrize("xp", ["numpy", "jax"])
@pytest.mark.parametrize("column", ["reward", "probability", "next_state", "terminated"])
def test_one_column_of_a_table_can_differ_between_environments(column, xp):
    env = TabularEnv(
        Transitions.of({0: {0: [(0.0, 0, 0.0, False), (1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}, [0])
    )  # fmt: skip
    own = getattr(env.default_params, column)
    own = np.stack([own, own[:, :, ::-1], own])
    with pytest.raises(af.OptionError, match="has the shape"):
        env.make_vec(3, xp=xp, params={column: own[:2]})
    envs = begun(env.make_vec(3, xp=xp, params={column: own}))
    seen, rewards, terminated, *_ = envs.step(np.zeros(3, int))
    expected = {
        "reward": ([1, 1, 1], [1, 0, 1], [True] * 3),
        "probability": ([1, 0, 1], [1, 0, 1], [True, False, True]),
        "next_state": ([1, 0, 1], [1, 1, 1], [True] * 3),
        "terminated": ([1, 1, 1], [1, 1, 1], [True, False, True]),
    }
    assert (seen.tolist(), rewards.tolist(), terminated.tolist()) == expected[column]


class OtherMaps(TabularEnv):
    """Each episode has one of two tables."""

    def sample_params(self, xp, rng, n, params):
        first = rng.integers((n,), 0, 2) == 0
        starts = xp.where(
            first[:, None], xp.zeros((n, 1), dtype=xp.int32), xp.ones((n, 1), dtype=xp.int32)
        )
        return params._replace(starts=starts)


@pytest.mark.parametrize("xp", LIBRARIES)
def test_tables_can_be_drawn_at_each_reset(xp):
    table = Transitions.of({s: {0: [(1.0, s, float(s), True)]} for s in (0, 1)}, [0])
    envs = OtherMaps(table, max_episode_steps=5).make_vec(64, xp=xp, autoreset_mode="SameStep")
    seen = [envs.reset(seed=1)[0]]
    for _ in range(3):
        before, (now, rewards, *_) = seen[-1], envs.step(af.convert(np.zeros(64, int), xp))
        np.testing.assert_array_equal(af.convert(rewards, "numpy"), af.convert(before, "numpy"))
        seen.append(now)
    assert 60 < sum(int(af.convert(x, "numpy").sum()) for x in seen) < 196


@pytest.mark.parametrize("xp", LIBRARIES)
def test_fickle_passengers_change_their_destination_once(xp):
    n = 3000
    env = Taxi(fickle_passenger=True, fickle_probability=0.25)
    envs = begun(env.make_vec(n, xp=xp, autoreset_mode="Disabled"))
    start = af.convert(envs.state, "numpy")
    assert fits(np.bincount(start.fickle, minlength=2), [0.75, 0.25])
    state = start._replace(number=np.full(n, _aboard := ((2 * 5 + 2) * 5 + 4) * 4 + 3, np.int32))
    envs.reset(options={"state": af.convert(state, xp)})
    south, drop = (af.convert(np.full(n, action), xp) for action in (0, 5))
    seen = af.convert(envs.step(drop)[0], "numpy")  # not moved, and so not changed
    assert set(seen.tolist()) == {_aboard}
    seen = af.convert(envs.step(south)[0], "numpy")
    destination, changed = seen % 4, start.fickle
    assert set(destination[~changed].tolist()) == {3}
    assert fits(np.bincount(destination[changed], minlength=4), [1 / 3, 1 / 3, 1 / 3, 0])
    again = af.convert(envs.step(south)[0], "numpy") % 4
    np.testing.assert_array_equal(again, destination)


# Blackjack: the policy takes a card below 15, or below 18 with an ace that counts as 11.


def takes(seen):
    total, _, ace = seen
    return total < 15 + 3 * (ace > 0)


def played(xp, n, **params):
    """Return, for n first episodes, the first observation, its reward, and the last sum."""
    envs = Blackjack().make_vec(n, xp=xp, autoreset_mode="Disabled", params=params)
    first = seen = af.convert(envs.reset(seed=2)[0], "numpy")
    over, rewards, last = np.zeros(n, bool), np.zeros(n), np.zeros(n, int)
    while not over.all():
        results = envs.step(af.convert(takes(seen).astype(int), xp))
        seen, reward, terminated, *_ = af.convert(results, "numpy")
        now = terminated & ~over
        rewards[now], last[now] = reward[now], seen[0][now]
        over |= terminated
    return first, rewards, last


def theirs(n, **options):
    env, rows = BlackjackEnv(**options), []
    env.reset(seed=5)
    for _ in range(n):
        first, _ = env.reset()
        seen, over = first, False
        while not over:
            seen, reward, over, *_ = env.step(int(takes(seen)))
        rows.append((*first, reward, seen[0]))
    return np.array(rows, float)


def same_distribution(ours, others, error=1e-6):
    """Tell whether two samples have one distribution, wrongly denied in one of 1 / `error` trials."""
    values = np.unique(np.concatenate([ours, others]))
    counts = np.array([[np.sum(x == value) for value in values] for x in (ours, others)], float)
    shares = counts.sum(axis=1, keepdims=True) / counts.sum()
    return is_near(counts, counts.sum(axis=0) * shares, len(values) - 1, error)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"sab": True}, marks=pytest.mark.long),
        pytest.param({"natural": True, "sab": False}, marks=pytest.mark.long),
    ],
)
def test_blackjack_has_the_distribution_of_gymnasiums(options):
    options = {"natural": False, "sab": False} | options
    sample = theirs(8_000, **options)
    for xp in LIBRARIES if options["natural"] else ("numpy",):
        first, rewards, last = played(xp, 40_000, **options)
        for ours, column in zip((*first, rewards, last), sample.T, strict=True):
            assert same_distribution(ours.astype(float), column)
        # naturals are rare, and rewarded by these options
        naturals = rewards[first[0] == 21]
        assert same_distribution(naturals, sample[sample[:, 0] == 21][:, 3])


def test_an_ace_counts_whenever_it_was_drawn():
    envs = begun(Blackjack().make_vec(500, autoreset_mode="Disabled"), 0)
    for _ in range(3):
        before, going = envs.state, envs.state.total <= 21
        envs.step(np.ones(500, int))
        card = envs.state.total - before.total
        assert set(card[going].tolist()) == set(range(1, 11))
        np.testing.assert_array_equal(envs.state.ace, before.ace | (card == 1))


def test_what_dealers_end_with():
    """The probabilities of a dealer with two cards, as two hands and a published number say."""
    chances = Blackjack.default_params.dealer
    dealer = np.diff(chances, axis=2, prepend=0, append=1)
    assert dealer[9, 9].tolist() == [0, 0, 0, 0, 1, 0]  # 20
    assert dealer[0, 9].tolist() == [0, 0, 0, 0, 0, 1]  # a natural
    assert dealer[9, 5, 0] == pytest.approx(8 / 13)  # 16: any card above 5 is too much
    weights = np.array([1.0] * 9 + [4.0]) / 13
    over = np.einsum("i,j,ij->", weights, weights, dealer[:, :, 0])
    assert over == pytest.approx(0.2816, abs=1e-4)  # who stands on all 17, from an infinite deck


def types(value):
    if isinstance(value, dict):
        return {key: types(part) for key, part in value.items()}
    return tuple(map(types, value)) if isinstance(value, tuple) else type(value)


class Jaxed(TabularEnv):
    library = "jax"

    def observe(self, xp, state, params):
        assert xp.__name__ == "jax.numpy"
        return super().observe(xp, state, params)


@pytest.mark.parametrize("needs", ["any library", "JAX"])
@pytest.mark.parametrize("name", ["Blackjack", "CliffWalking", "FrozenLake", "Taxi"])
def test_a_single_environment_in_numpy_gives_what_gymnasiums_gives(name, needs):
    theirs = {"Blackjack": BlackjackEnv, "CliffWalking": CliffWalkingEnv, "FrozenLake": FrozenLakeEnv, "Taxi": TaxiEnv}  # fmt: skip
    ours = gym.make(f"arrayferry/{name}-v0").unwrapped
    if needs == "JAX" and isinstance(ours.functional, TabularEnv):
        ours = Jaxed(ours.functional.default_params).make()
    (first, start), (seen, reward, *ended, info) = ours.reset(seed=1), ours.step(1)
    their_first, their_start = (their := theirs[name]()).reset(seed=1)
    assert types(first) == types(seen) == types(their_first)
    assert types((reward, *ended)) == (float, bool, bool)
    for mine, expected in ((start, their_start), (info, their.step(1)[-1])):
        for key, value in expected.items():
            assert isinstance(mine[key], (float, type(value)))


def test_ids():
    assert gym.make("arrayferry/FrozenLake8x8-v0").observation_space.n == 64
    slippery = gym.make_vec("arrayferry/CliffWalkingSlippery-v0", 2)
    assert slippery.params.probability.shape == (48, 4, 3)


def test_equal_environments_are_the_same():
    assert FrozenLake() == FrozenLake()
    assert FrozenLake() != FrozenLake(success_rate=0.5)
    assert FrozenLake(masks=True) != FrozenLake()
    assert Taxi(fickle_passenger=True) != Taxi(fickle_passenger=True, fickle_probability=0.5)
    assert Blackjack() != Blackjack(masks=True)


def test_a_table_of_gymnasium_can_be_passed():
    theirs = gym.make("FrozenLake-v1", is_slippery=False).unwrapped
    env = TabularEnv(Transitions.of(theirs.P, [0]), max_episode_steps=9)
    np.testing.assert_equal(env.default_params, FrozenLake(is_slippery=False).default_params)
    assert isinstance(env.action_space, spaces.Discrete)


STAY = (1.0, 0, 1.0, False)
TABLE = Transitions.of({0: {0: [STAY]}}, [0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FrozenLake(map_name="5x5"), 'Pass "4x4"'),
        *[(lambda rows=rows: FrozenLake(rows), "is not a map") for rows in (["SF", "G"], ["FF", "GF"], ["SX"])],
        (lambda: FrozenLake(success_rate=1.5), "success_rate=1.5"),
        (lambda: Taxi(rainy_probability=-1), "rainy_probability=-1"),
        (lambda: TabularEnv({0: {}}), "Transitions.of"),
        (lambda: Transitions.of({}, []), "the table has no action"),
        (lambda: Transitions.of({0: {0: [STAY]}, 2: {0: [STAY]}}, [0]), "state 2 of the table"),
        (lambda: Transitions.of({0: {0: [STAY], 1: [STAY]}, 1: {1: [STAY], 2: [STAY]}}, [0]), "has the actions"),
        (lambda: Transitions.of({0: {0: []}}, [0]), "with an outcome"),
        (lambda: TabularEnv(TABLE._replace(probability=np.float32([[[0.5]]]))), "add up to 1"),
        (lambda: TabularEnv(TABLE._replace(next_state=np.int32([[[3]]]))), "next_state names"),
        (lambda: TabularEnv(TABLE._replace(starts=np.int32([]))), "starts names"),
        (lambda: TabularEnv(TABLE._replace(reward=np.zeros((1, 2, 1)))), "shapes of a table differ"),
    ],
)  # fmt: skip
def test_wrong_arguments(make, words):
    with pytest.raises(af.OptionError, match=words):
        make()


@pytest.mark.parametrize("below", [1.0, 0.999991])
@pytest.mark.parametrize(
    "chances", [(1, 0, 0), (0, 1, 0), (0.25, 0.75, 0), (0, 0, 1), (0.5, 0, 0.5)]
)
def test_an_outcome_of_probability_0_never_occurs(chances, below):
    class Given:
        """Random numbers up to the highest below 1."""

        def uniform(self, shape):
            assert shape == (len(numbers),)
            return numbers

    numbers = np.array([0.0, 0.1, 0.25, 0.5, 0.999992, 1 - 2**-24], np.float32)
    rows = [(below * chance, number, 0.0, False) for number, chance in enumerate(chances)]
    table = {state: {0: rows} for state in range(3)}
    env = TabularEnv(Transitions.of(table, [0]))
    zeros = np.zeros(len(numbers), np.int32)
    state = TabularState(zeros, np.ones(len(zeros), np.float32))
    after, *_ = env.step(af.namespace_of(zeros), Given(), state, zeros, env.default_params)
    assert {chances[number] > 0 for number in after.number.tolist()} == {True}
