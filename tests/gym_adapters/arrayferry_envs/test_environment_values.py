"""Values of environments: sums that lose no digits, arrays that stay the environment's own, and dtypes by one rule."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs import begun
from functional_envs import LIBRARIES, Count, still
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import EnvResultError, FunctionalEnv, evaluate, rollout

N = 2


class Base(Count):
    def step(self, xp, rng, state, action, params):
        return state, self.reward(xp, state), False


def rewarding(function):
    return type("Rewards", (Base,), {"reward": lambda self, xp, state: function(xp, state)})()


def first(env, **options):
    return begun(env.make_vec(N, **options)).step(np.zeros(N, int))


def test_wide_rewards_are_added_up_in_their_dtype(x64):
    env = rewarding(lambda xp, state: jnp.full(state.shape[0], 2.0**24 + 1, jnp.float64))
    options = {"key": jax.random.key(0), "num_envs": N, "max_episode_steps": 3}
    returns = evaluate(env, still, **options).returns
    assert returns.dtype == np.float64
    assert returns.tolist() == [[3 * (2**24 + 1)]] * N


ODD = 2**24 + 1


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_whole_rewards_lose_no_digits_without_a_word(library, dtype):
    def of(number):
        return rewarding(lambda xp, s: xp.full(s.shape, number, dtype=getattr(xp, dtype)))

    options = LIBRARIES[library]
    if library == "jax":
        dtype = "int32"
        words = r"rewards of Rewards\.step\(\) are of dtype int32.*float32"
        with pytest.warns(UserWarning, match=words):
            first(of(3), **options)
        with pytest.warns(UserWarning, match="16,777,216"):
            rollout(of(3), still, None, jax.random.key(0), 2, N)
        return
    if library.startswith("torch") and dtype == "uint32":
        pytest.skip("PyTorch computes little with it")
    reward = af.convert(first(of(2**24), **options)[1], "numpy")
    assert reward.tolist() == [2**24] * N
    assert reward.dtype == np.float32
    with pytest.raises(EnvResultError, match=rf"Rewards\.step\(\) loses digits: {ODD}.*float64"):
        first(of(ODD), **options)


def test_rewards_written_as_numbers(library):
    options = LIBRARIES[library]
    reward = first(rewarding(lambda xp, s: -(2**30)), **options)[1]
    assert af.convert(reward, "numpy")[0] == -(2**30)
    with pytest.raises(EnvResultError, match=f"loses digits: {ODD}"):
        first(rewarding(lambda xp, s: ODD), **options)
    with pytest.raises(EnvResultError, match=r"reward of Rewards\.step\(\) is of dtype complex64"):
        first(rewarding(lambda xp, s: xp.astype(s, xp.complex64)), **options)


# What the environment holds stays its own.


class Subclass(np.ndarray):
    pass


def table():
    return np.arange(2 * N, dtype=np.float32).reshape(N, 2).copy()


class Tabled(Base):
    observation_space = spaces.Box(-99, 99, (2,), np.float32)
    shared = table()
    reward_shape = (2,)

    def __init__(self, held=None, of=lambda held: held):
        self.held, self.of = held, of

    @functools.cached_property
    def late(self):
        return table()

    def find(self):
        return self.of(self.held)

    def reward(self, xp, state):
        return self.find()

    def observe(self, xp, state, params):
        return self.find()

    def info(self, xp, state, params):
        return {"x": self.find(), "inner": {"y": self.find()}}


HOLDERS = {
    "an attribute": (lambda: table(), lambda x: x),
    "a list": (lambda: [table()], lambda x: x[0]),
    "a dict": (lambda: {"a": (table(),)}, lambda x: x["a"][0]),
    "an object": (lambda: SimpleNamespace(inner=SimpleNamespace(x=table())), lambda x: x.inner.x),
    "a view": (lambda: np.arange(4 * N, dtype=np.float32).reshape(2 * N, 2)[:N], lambda x: x),
    "a subclass": (lambda: table().view(Subclass).copy(), lambda x: x),
    "a partial function": (lambda: functools.partial(np.asarray, table()), lambda x: x()),
    "a bound method": (lambda: Tabled(table()).find, lambda x: x()),
}


def spoil(result):
    for leaf in af.flatten(result)[0]:
        leaf[...] = 77


def spoiled(env, mode):
    """Write into all that an agent gets, twice."""
    before = env.find().copy()
    envs = env.make_vec(N, autoreset_mode=mode, max_episode_steps=1)
    spoil(envs.reset(seed=0))
    assert np.array_equal(env.find(), before)
    for _ in range(2):
        spoil(envs.step(np.zeros(N, int)))
        assert np.array_equal(env.find(), before)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_an_agent_cannot_write_into_the_environment(holder, mode):
    held, of = HOLDERS[holder]
    spoiled(Tabled(held(), of), mode)


@pytest.mark.parametrize("name", ["shared", "late"])
def test_an_agent_cannot_write_into_class_attributes_and_cached_properties(name):
    env = type("Other", (Tabled,), {"find": lambda self: getattr(self, name)})()
    spoiled(env, "SameStep")


def test_single_environments_and_torch_share_nothing_with_the_environment():
    env = Tabled(table()[:1].copy())
    for xp in ("numpy", "torch"):
        single = env.make(xp=xp)
        observation, info = single.reset(seed=0)
        observation[...] = 77
        info["x"][...] = 77
        assert env.held.tolist() == [[0, 1]]


# States without a stated dtype.


class Mixed(FunctionalEnv):
    """States without a stated dtype, next to numbers that have one."""

    observation_space = spaces.Box(-999, 999, (2,), np.float32)
    action_space = spaces.Discrete(2)
    default_params = {"gravity": np.float64(0.5), "mass": np.float32(2), "name": "x"}

    def reset(self, xp, rng, n, params):
        return {"wide": xp.zeros((n,)), "narrow": xp.zeros((n,), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        one = xp.ones(state["wide"].shape, dtype=xp.float32)
        wide = xp.astype(state["wide"] + params["gravity"] * params["mass"], xp.float32)
        narrow = state["narrow"] + params["gravity"] * xp.ones(one.shape)
        return {"wide": wide, "narrow": narrow}, params["gravity"] * one, False

    def observe(self, xp, state, params):
        return xp.stack([xp.astype(state["wide"], xp.float32), state["narrow"]], axis=1)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_floats_of_any_precision_are_one_mistake_less(library, mode):
    envs = Mixed().make_vec(2, autoreset_mode=mode, max_episode_steps=3, **LIBRARIES[library])
    envs.reset(seed=0)
    dtypes = [leaf.dtype for leaf in af.flatten(envs.state)[0]]
    for number in (1, 2):
        observation, reward, *_ = envs.step(np.zeros(2, int))
        assert af.convert(observation, "numpy").tolist() == [[number, number / 2]] * 2
        assert af.convert(reward, "numpy").dtype == np.float32
        assert [leaf.dtype for leaf in af.flatten(envs.state)[0]] == dtypes
    for _ in range(3):
        envs.step(np.zeros(2, int))
    assert [leaf.dtype for leaf in af.flatten(envs.state)[0]] == dtypes
    envs.reset(options={"params": {"gravity": 1, "mass": np.float64(1)}})
    assert af.convert(envs.step(np.zeros(2, int))[0], "numpy").tolist() == [[1, 1]] * 2


def test_the_same_in_rollouts():
    _, found = rollout(
        Mixed(), still, None, jax.random.key(0), 3, 2, env_params={"gravity": np.float32(0.5)}
    )
    assert found.final_observation[:, 0, 0].tolist() == [1, 2, 3]


def test_another_kind_of_dtype_is_an_error_with_the_line(library):
    class Broken(Mixed):
        def step(self, xp, rng, state, action, params):
            return {**state, "wide": xp.astype(state["wide"], xp.int32)}, 1.0, False

    envs = begun(Broken().make_vec(2, **LIBRARIES[library]), 0)
    line = Broken.step.__code__.co_firstlineno
    with pytest.raises(
        EnvResultError,
        match=rf"Broken\.step\(\) \(.*values\.py:{line}\) gave .*int32 for state\['wide'\], but "
        r"the first reset\(\) returned (?:\w+\.)?(\w+)\. Cast it, for instance by .*xp\.\1\)",
    ):
        envs.step(np.zeros(2, int))


@pytest.mark.parametrize("value", [np.float64(2.0), np.float32(2.0), 2.0])
def test_a_float_for_a_static_parameter_is_named(library, value):
    class Static(Mixed):
        default_params = {"gravity": 0.5, "mass": 2.0, "steps": 1}

    with pytest.raises(af.OptionError, match=r"params\['steps'\] is static"):
        Static().make_vec(2, params={"steps": value}, **LIBRARIES[library])
