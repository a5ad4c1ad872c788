"""Episodes that are levels, each named by its seed."""

import copy
import pickle
from typing import Any, NamedTuple

import array_api_strict
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional

import arrayferry as af
from arrayferry_envs import (
    CartPole,
    FunctionalEnv,
    Pendulum,
    check_functional_env,
    from_env,
    repeat_action,
    rollout,
    with_seeds,
    wrap,
)
from arrayferry_gym.wrappers import kernels

SEEDS = range(3, 40, 4)


class Params(NamedTuple):
    size: float = 1.0
    mass: float = 2.0
    table: Any = np.zeros(3, np.float32)
    name: str = "land"


class Land(FunctionalEnv):
    """Draws two of its parameters. Shows them, one that it does not draw, a number of the reset and one of the step."""

    observation_space = spaces.Box(-np.inf, np.inf, (7,), np.float32)
    action_space = spaces.Discrete(2)
    default_params = Params()
    max_episode_steps = 50

    def sample_params(self, xp, rng, n, params):
        return params._replace(size=rng.uniform((n,)), table=rng.normal((n, 3)))

    def reset(self, xp, rng, n, params):
        assert params.size.shape == (n,)
        assert params.name == "land"
        return {"own": rng.uniform((n,)), "stepped": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        drawn = rng.uniform(state["own"].shape)
        return {**state, "stepped": drawn}, params.size, drawn > 2

    def observe(self, xp, state, params):
        mass = xp.zeros_like(params.size) + params.mass
        first = xp.stack([state["own"], params.size, mass, state["stepped"]], axis=1)
        return xp.concat([first, params.table], axis=1)


def rows(results):
    """Return the seeds of a batch, and its observations by rows, in NumPy."""
    observations, seeds = af.convert((results[0], results[-1]["seed"]), "numpy")
    return seeds.tolist(), observations


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("xp", ["numpy", "torch", "jax", array_api_strict])
@pytest.mark.parametrize("env", [CartPole, Land, repeat_action(Land(), 2)])
def test_a_level_is_the_same_in_any_row_and_batch(env, xp, mode):
    levels, count = {}, 3 if mode == "NextStep" else 2
    for n in (1, 3, 70 if xp == "jax" else 9):
        envs = with_seeds(env, SEEDS).make_vec(n, xp=xp, max_episode_steps=2, autoreset_mode=mode)
        results = envs.reset(seed=5)
        for step in range(1, 10):
            for seed, row in zip(*rows(results), strict=True):
                assert np.array_equal(levels.setdefault(seed, row), row)
            for _ in range(count):
                before, _ = rows(results)
                results = envs.step([0] * n)
            if mode == "SameStep":
                assert rows((results[0], results[-1]["final_info"]))[0] == before
                assert af.convert(results[-1]["final_info"]["_seed"], "numpy").all()
            if mode == "Disabled":
                mask = np.arange(n) % 2 == step % 2
                assert rows(results)[0] == before
                envs.reset(options={"reset_mask": mask})
                results = envs.reset(options={"reset_mask": ~mask})
            assert af.convert(results[-1]["_seed"], "numpy").all()
    assert set(levels) <= set(SEEDS)
    assert len(levels) > 5
    assert len({row[0] for row in levels.values()}) == len(levels)


@pytest.mark.parametrize("xp", ["numpy", "jax", "torch"])
def test_seed_of_reset_seeds_the_choice_and_no_level(xp):
    first, again, other = (with_seeds(Land, SEEDS).make_vec(8, xp=xp) for _ in range(3))
    (seeds, observed), (same, _) = rows(first.reset(seed=7)), rows(again.reset(seed=7))
    assert seeds == same
    assert rows(other.reset(seed=8))[0] != seeds
    only = with_seeds(Land, [7]).make_vec(2, xp=xp)
    level = rows(only.reset(seed=7))[1]
    assert np.array_equal(rows(only.reset(seed=1))[1], level)
    assert np.array_equal(level[0], level[1])
    usual = Land().make_vec(2, xp=xp)
    assert not np.isin(level[0, :2], rows((usual.reset(seed=7)[0], {"seed": level}))[1]).any()
    assert not np.isin(observed[:, 0], observed[:, 1]).any()  # the parameters and the state
    steps = [af.convert(only.step([0, 0])[0], "numpy")[:, 3] for _ in range(3)]
    assert len(np.unique(steps)) == 6  # of the batch: the rows of one level differ
    assert np.array_equal(
        rows(with_seeds(Land, range(7, 8)).make_vec(1, xp=xp).reset())[1], level[:1]
    )


@pytest.mark.parametrize("xp", ["numpy", "jax", "torch"])
def test_parameters_that_are_passed_hold(xp):
    envs = with_seeds(Land, SEEDS).make_vec(4, xp=xp)
    seeds, drawn = rows(envs.reset(seed=1))
    mass = np.arange(4.0)
    same, given = rows(envs.reset(seed=1, options={"params": {"mass": mass, "size": 0.25}}))
    assert same == seeds
    assert np.array_equal(given[:, 2], mass)
    assert (given[:, 1] == 0.25).all()
    assert np.array_equal(given[:, [0, 4, 5, 6]], drawn[:, [0, 4, 5, 6]])
    assert envs.params.mass[3] == 3


@pytest.mark.parametrize("xp", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
def test_copies_go_on(xp, again):
    envs = with_seeds(Land, SEEDS).make_vec(3, xp=xp, max_episode_steps=2)
    envs.reset(seed=1)
    other = again(envs)
    for _ in range(7):
        one, two = rows(envs.step([0, 1, 0])), rows(other.step([0, 1, 0]))
        assert one[0] == two[0]
        assert np.array_equal(one[1], two[1])
    other.reset(seed=9)
    other.state = envs.state
    assert af.convert(other.step([0, 0, 0])[-1]["seed"], "numpy").tolist() == one[0]


def test_in_compiled_rollouts_and_around_others():
    def policy(params, observation, key):
        return jax.random.randint(key, observation.shape[:1], 0, 2), None

    env = with_seeds(CartPole(), SEEDS)
    assert env == with_seeds(CartPole(), SEEDS)
    assert env != with_seeds(CartPole(), range(3))
    assert repr(env) == "<with_seeds(<CartPole>, range(3, 40, 4))>"
    _, steps = rollout(env, policy, None, jax.random.key(0), 60, 16, collect="info")
    seeds, began = np.asarray(steps.info["seed"]), np.asarray(steps.began)
    first = np.asarray(steps.observation)[began]
    levels = {}
    for seed, row in zip(seeds[began], first, strict=True):
        assert np.array_equal(levels.setdefault(seed, row), row)
    assert began.sum() > len(levels) > 5
    assert (seeds[1:] == seeds[:-1])[~began[1:]].all()
    wrapped = with_seeds(wrap(Pendulum(), kernels.NormalizeObservation()), SEEDS)
    assert "seed" in wrapped.make_vec(2).reset(seed=1)[1]
    assert wrapped.max_episode_steps == 200
    assert repeat_action(env, 2).make().reset(seed=1)[1]["seed"] in SEEDS
    fewer = with_seeds(env, [5])
    assert fewer.make().reset()[1] == {"seed": 5}
    assert check_functional_env(with_seeds(Land, [1, 2])) == []


@pytest.mark.assumes_other("strict")
def test_environments_of_jax():
    pytest.importorskip("arrayferry_suites")
    env = with_seeds(from_env(CartPoleFunctional()), [1, 2])
    one, two = env.make_vec(1), env.make_vec(6, xp="torch")
    levels = dict(zip(*rows(two.reset(seed=1)), strict=True))
    assert len(levels) == 2
    seeds, observed = rows(one.reset(seed=2))
    assert np.array_equal(levels[seeds[0]], observed[0])


def test_generators_of_jax_that_vmap_breaks():
    with jax.default_prng_impl("rbg"):
        envs = with_seeds(CartPole(), [1, 2]).make_vec(9, xp="jax")
        seeds, observed = rows(envs.reset(seed=1))
    for seed in (1, 2):
        assert len(np.unique(observed[np.array(seeds) == seed], axis=0)) == 1
    assert len(np.unique(observed, axis=0)) == 2


def test_what_names_seeds():
    for seeds in ([4], (4,), {4}, np.array([4]), [np.int64(4)], range(4, 5), iter([4])):
        assert with_seeds(CartPole, seeds).make().reset()[1] == {"seed": 4}
    last = with_seeds(CartPole, range(2**31 - 1, 2**31 - 3, -1)).make_vec(8, xp="jax")
    assert set(rows(last.reset(seed=1))[0]) == {2**31 - 1, 2**31 - 2}
    many = with_seeds(CartPole, range(2**31)).make_vec(8)
    assert min(rows(many.reset(seed=1))[0]) >= 0


@pytest.mark.parametrize(
    "seeds",
    [[], range(0), range(-1, 5), range(5, -2, -1), [3, -1], [1.5], ["4"], "45", 5, True, [True],
     np.array(4), np.array([1.0]), np.array([[1]]), [2**31], range(2**31 + 1), object()],
)  # fmt: skip
def test_what_names_no_seeds(seeds):
    with pytest.raises(af.OptionError, match="Pass one or more integers from 0 to 2147483647"):
        with_seeds(CartPole, seeds)
