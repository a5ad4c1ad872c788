"""Actions of each dtype: the quick way, which is taken from the second one on, does what the complete way does."""

import ml_dtypes
import numpy as np
import pytest
import torch
from cases import crossed
from envs import begun, host
from frames import calls_of
from functional_envs import LIBRARIES, Bare
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import CartPole
from arrayferry_gym.extending import held_dtype
from arrayferry_gym.vector import JaxToTorch

WHOLE = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")
FLOATS = ("float32", "float64", "float16", "bfloat16")
AGENTS = ("numpy", "torch", "jax")
SPACES = {
    "Discrete": spaces.Discrete(3),
    "Discrete from 2": spaces.Discrete(3, start=2),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(2),
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "Box of bounds": spaces.Box(np.float32([-0.1, 0]), np.float32([0.1, np.inf])),
    "Box of whole": spaces.Box(0, 200, (2,), np.uint8),
}


class Shows(Bare):
    """The observation is the action."""

    observation_space = spaces.Box(-1000, 1000, (2,), np.float32)

    def __init__(self, space):
        self.action_space = space

    def reset(self, xp, rng, n, params):
        return {"seen": xp.zeros((n, 2), dtype=xp.float32)}

    def step(self, xp, rng, state, action, params):
        action = xp.astype(action, xp.float32)
        seen = xp.stack([action] * 2, axis=1) if action.ndim == 1 else action
        return {"seen": seen}, xp.zeros_like(seen[:, 0]), False

    def observe(self, xp, state, params):
        return state["seen"]


def made(space, library, num_envs):
    env = Shows(space)
    return begun(env.make_vec(num_envs, **library) if num_envs else env.make(**library))


def in_library(x, agent, dtype):
    """Return an array in a dtype in a library, None if that does not have it."""
    with np.errstate(over="ignore"):
        x = x.astype(getattr(ml_dtypes, dtype, dtype))
    if agent == "jax" and dtype.endswith("64"):
        return None
    return x if agent == "numpy" else af.convert(x, agent)


def what_happens(env, action):
    try:
        return host(env.step(action)[0]).tobytes()
    except af.ConversionError as error:
        return str(error)


def numbers(dtype):
    """Return numbers that a dtype has: in spaces, at their edges, and outside."""
    whole = [2, 0, 1, 3, 4, 127, 255, 2**15 + 1, 2**31, 2**40, 2**63, -1, -2, -128, -(2**31) - 1]
    if dtype in FLOATS:
        return [*map(float, whole), -0.0, 0.25, 0.1, 1e300, np.inf, -np.inf, np.nan]
    if dtype == "bool":
        return [True, False]
    limits = np.iinfo(dtype)
    return [x for x in whole if limits.min <= x <= limits.max]


@pytest.mark.parametrize("num_envs", [3, None])
@pytest.mark.parametrize(("library", "agent", "name"), crossed(LIBRARIES, AGENTS, SPACES))
def test_the_quick_way_does_what_the_complete_way_does(library, agent, name, num_envs):
    space = SPACES[name]
    shape = (*([num_envs] * bool(num_envs)), *space.shape)
    quick, complete = (made(space, LIBRARIES[library], num_envs) for _ in range(2))
    for dtype in (*WHOLE, *FLOATS):
        values = [in_library(np.full(shape, x), agent, dtype) for x in numbers(dtype)]
        learnt = values[0]
        if learnt is None:
            continue
        others = [learnt[..., None, None], [learnt], learnt[:0] if shape else [1, 2]]
        what_happens(quick, learnt)
        for given in (*values, *others):
            complete._actions._forget_ways()
            assert what_happens(quick, given) == what_happens(complete, given), (dtype, given)


class Own(np.ndarray):
    """A class of arrays."""


@pytest.mark.parametrize("num_envs", [3, None])
@pytest.mark.parametrize(("library", "agent"), crossed(LIBRARIES, AGENTS))
def test_a_second_action_of_a_dtype_takes_the_quick_way(library, agent, num_envs):
    for dtypes, space in ((WHOLE, SPACES["Discrete"]), (FLOATS, SPACES["Box"])):
        found = {}
        for dtype in dtypes:
            shape = (*([num_envs] * bool(num_envs)), *space.shape)
            action = in_library(np.ones(shape), agent, dtype)
            if action is not None:
                env = made(space, LIBRARIES[library], num_envs)
                for _ in range(3):
                    env.step(action)
                found[dtype] = len(calls_of(env.step, action))
        # a fitting without it makes more than a hundred calls
        assert max(found.values()) < min(found.values()) + 40, found


@pytest.mark.parametrize("agent", AGENTS)
def test_every_dtype_is_clipped_to_the_same_bound(agent, library):
    for dtype in (*WHOLE, *FLOATS):
        action = in_library(np.full((2, 2), 1), agent, dtype)
        envs = made(SPACES["Box of bounds"], LIBRARIES[library], 2)
        for _ in range(2 * (action is not None)):
            assert host(envs.step(action)[0]).tolist() == np.float32([[0.1, 1]] * 2).tolist()


def test_other_forms_after_one_was_learnt():
    env = made(spaces.Discrete(3), LIBRARIES["numpy"], None)
    for action in (np.uint8(2), np.array(2, np.uint8), True, np.bool_(True), torch.tensor(2, dtype=torch.uint8)):  # fmt: skip
        assert host(env.step(action)[0])[0] == host(env.step(action)[0])[0] == int(action)
        assert host(env.step(np.int16(1))[0])[0] == 1
    env = made(SPACES["Box"], LIBRARIES["numpy"], 1)
    for order in "<>":
        for _ in range(2):
            assert host(env.step(np.full((1, 2), 0.5, f"{order}f8"))[0])[0, 0] == 0.5
            assert host(env.step(np.full((1, 2), 0.25, f"{order}f4"))[0])[0, 0] == 0.25
    for _ in range(2):
        for dtype in ("f4", "i4", "f8"):  # a class with a mask, after one of the same class without
            what_happens(env, np.ma.masked_array(np.ones((1, 2), dtype)))
        with pytest.raises(af.ConversionError):
            env.step(np.ma.masked_array(np.ones((1, 2)), [[True, False]]))
        assert host(env.step(np.full((1, 2), 0.5).view(Own))[0])[0, 0] == 0.5


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("agent", ["numpy", "torch"])
@pytest.mark.parametrize("name", ["Discrete", "Box"])
def test_actions_enter_the_compiled_step_without_an_array_of_jax_before(name, agent, wrapped):
    space = SPACES[name]
    envs, others = (Shows(space).make_vec(4, xp="jax", autoreset_mode="SameStep") for _ in range(2))
    envs, others = begun(JaxToTorch(envs) if wrapped else envs), begun(others)
    dtype = "int64" if name == "Discrete" else "float32"
    buffer = in_library(np.zeros((4, *space.shape)), agent, dtype)
    for number in range(6):
        buffer[...] = 0.25 * number if name == "Box" else number % 3
        wanted = host(others.step(af.convert(buffer, "jax"))[0])
        if number < 3:
            seen = envs.step(buffer)[0]
        else:
            results = []
            calls = calls_of(lambda results: results.append(envs.step(buffer)), results)
            assert not {"Identity._run", "Identity.one"} & {*calls}
            seen = results[0][0]
        buffer[...] = 1  # the agent may reuse it at once
        assert np.array_equal(host(seen), wanted)
    with af.trace() as trace:
        envs.step(buffer)
    assert "numpy -> jax" in str(trace)


@pytest.mark.parametrize("agent", ["numpy", "torch"])
def test_large_actions_may_be_changed_after_the_step(agent):
    envs = begun(CartPole().make_vec(20_000, xp="jax"))
    twins = begun(CartPole().make_vec(20_000, xp="jax"))
    for number in range(4):
        given = np.arange(20_000) % (number + 2) == 0
        buffer = in_library(given, agent, "int64")
        seen = envs.step(buffer)[0]
        buffer[...] = 0
        wanted = twins.step(af.convert(given.astype(np.int32), "jax"))[0]
        assert np.array_equal(host(seen), host(wanted))


class Holds(Shows):
    """The state is the action too."""

    def reset(self, xp, rng, n, params):
        dtype = getattr(xp, held_dtype(self.action_space.dtype, af.backend_of(xp.zeros(1))))
        held = xp.zeros((n, *self.action_space.shape), dtype=dtype)
        return {**super().reset(xp, rng, n, params), "held": held}

    def step(self, xp, rng, state, action, params):
        state, reward, terminated = super().step(xp, rng, state, action, params)
        return {**state, "held": action}, reward, terminated


@pytest.mark.parametrize("check", ["fit", "strict"])
@pytest.mark.parametrize(("library", "agent"), crossed(LIBRARIES, AGENTS))
def test_whole_numbers_have_the_dtype_of_the_space(library, agent, check):
    for name in ("Discrete", "MultiDiscrete", "MultiBinary", "Box of whole"):
        space = SPACES[name]
        for dtype in WHOLE:
            envs = begun(Holds(space).make_vec(2, check_actions=check, **LIBRARIES[library]))
            action = in_library(np.ones((2, *space.shape)), agent, dtype)
            for _ in range(3 * (action is not None)):
                assert (host(envs.step(action)[0]) == 1).all()


@pytest.mark.parametrize(("library", "agent"), crossed(LIBRARIES, AGENTS))
def test_numbers_of_each_library_are_checked_if_asked_for(library, agent):
    envs = Shows(SPACES["MultiBinary"]).make_vec(2, check_actions="strict", **LIBRARIES[library])
    begun(envs)
    for _ in range(2):
        with pytest.raises(af.ConversionError, match=r"2, at .* is out of its range"):
            envs.step(in_library(np.full((2, 2), 2), agent, "int32"))


UNBOUNDED = spaces.Box(np.float32([-np.inf, -np.inf]), np.float32([np.inf, 1]))


@pytest.mark.parametrize(("library", "agent"), crossed(LIBRARIES, AGENTS))
def test_infinity_remains_where_the_bound_is_infinite(library, agent):
    largest = np.finfo(np.float32).max
    for dtype in FLOATS:
        envs = made(UNBOUNDED, LIBRARIES[library], 1)
        for number, seen in ((np.inf, [np.inf, 1]), (-np.inf, [-np.inf] * 2), (1, [1, 1])):
            action = in_library(np.full((1, 2), number), agent, dtype)
            for _ in range(2 * (action is not None)):
                assert host(envs.step(action)[0]).tolist() == [seen], dtype
        if dtype == "float64" and action is not None:
            action = in_library(np.full((1, 2), -1e300), agent, dtype)
            assert (host(envs.step(action)[0]) == -largest).all()


@pytest.mark.parametrize("wrong", [1.7, np.nan, -0.5])
@pytest.mark.parametrize(("library", "agent"), crossed(LIBRARIES, AGENTS))
def test_fractions_are_refused_for_a_box_of_whole_numbers(library, agent, wrong):
    for dtype in FLOATS:
        envs = made(SPACES["Box of whole"], LIBRARIES[library], 1)
        for number in (1, wrong, 1, wrong):
            action = in_library(np.full((1, 2), number), agent, dtype)
            if action is None:
                continue
            if number == 1:
                assert host(envs.step(action)[0]).tolist() == [[1, 1]]
            else:
                with pytest.raises(af.ConversionError, match=r"at \[0, 0\], is not a whole number"):
                    envs.step(action)


WIDE = spaces.Box(-3, 2**40, (2,), np.int64)
REAL = spaces.Box(-np.inf, np.inf, (2,), np.float64)


@pytest.mark.parametrize("check", ["fit", "strict"])
@pytest.mark.parametrize("agent", AGENTS)
def test_numbers_that_jax_does_not_have_are_refused(agent, check):
    dtypes = "int64", "uint32", "uint64", "float32", "float64"
    cases = [(WIDE, dtype, 2**32 - 2**8) for dtype in dtypes]
    for space, dtype, number in (*cases, (REAL, "float64", 1e300)):
        action = in_library(np.full((1, 2), 1), agent, dtype)
        if action is None:
            continue
        env = begun(Shows(space).make_vec(1, xp="jax", check_actions=check))
        wrong = in_library(np.full((1, 2), number), agent, dtype)
        for _ in range(2):
            assert host(env.step(action)[0]).tolist() == [[1, 1]]
            with pytest.raises(af.NarrowingError, match=r"jax has no .*64 here, and .* does not"):
                env.step(wrong)
        if check == "fit" and not dtype.startswith("u") and space is WIDE:
            least = in_library(np.full((1, 2), -(2**31)), agent, dtype)
            assert host(env.step(least)[0]).tolist() == [[-3, -3]]
