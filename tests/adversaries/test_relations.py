"""Relations between results, where nothing says what is right: by a detour, before or after an operation, in each library."""

import itertools
import random

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import stateful
from cases import quick_if
from envs import host
from functional_envs import Sums
from gymnasium import spaces

import arrayferry as af
from arrayferry_envs import rollout, wrap
from arrayferry_gym import ArrayConversion, wrappers
from arrayferry_gym import vector as adapters
from arrayferry_gym.wrappers import kernels
from arrayferry_gym.wrappers import vector as vector_wrappers

pytestmark = pytest.mark.needs("torch")
NAMES = ("numpy", "torch", "jax", "dask", "array_api_strict")
SEEDS = quick_if(range(12), (0).__eq__)
SPECIAL = {
    "f": [-0.0, np.inf, -np.inf, np.nan],
    "c": [complex(-0.0, np.inf), complex(np.nan, -0.0)],
}
OTHERS = ["int16", "uint16", "uint32", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
STRICT_LACKS = ("float16", "bfloat16", "float8_e4m3fn")
OPERATIONS = {
    "first": lambda xp, x: x[0, ...],
    "rest": lambda xp, x: x[1:, ...],
    "every other": lambda xp, x: x[::2, ...],
    "flip": lambda xp, x: xp.flip(x),
    "transpose": lambda xp, x: xp.permute_dims(x, tuple(reversed(range(x.ndim)))),
    "cast": lambda xp, x: xp.astype(x, xp.complex64 if "complex" in str(x.dtype) else xp.float64),
    "compare": lambda xp, x: x != x,
    "concat": lambda xp, x: xp.concat([x, x]),
    "stack": lambda xp, x: xp.stack([x, x], axis=-1),
    "broadcast": lambda xp, x: xp.broadcast_to(x, (3, *x.shape)),
    "reshape": lambda xp, x: xp.reshape(x, (-1,)),
    "conj": lambda xp, x: xp.conj(x) if "complex" in str(x.dtype) else x,
}


def some_array(rng, others=()):
    x = stateful.vary(rng, stateful.numbers(rng))
    special = SPECIAL.get(x.dtype.kind)
    if special and rng.random() < 0.5:
        x = np.asarray(rng.choices(special, k=x.size)).astype(x.dtype).reshape(x.shape)
    elif others and x.dtype.kind != "c":
        x = x.astype(rng.choice(others))
    return x


def check_same(one, other, label):
    """Fail unless two arrays have the same library, shape, dtype and numbers, with their signs."""
    assert af.backend_of(one).name == af.backend_of(other).name, label
    assert tuple(one.shape) == tuple(other.shape), label
    assert one.dtype in (other.dtype, getattr(other.dtype, "newbyteorder", lambda: None)()), label
    one, other = (np.asarray(af.convert(x, "numpy", copy=True)) for x in (one, other))
    np.testing.assert_array_equal(one, other, err_msg=str(label))
    if one.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other), err_msg=str(label))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_detour_changes_nothing(seed, x64):
    x = some_array(random.Random(seed), OTHERS)
    for first, detour, last in itertools.permutations(NAMES, 3):
        if "array_api_strict" in (first, detour, last) and x.dtype.name in STRICT_LACKS:
            continue
        y = af.convert(x, first)
        found = af.convert(af.convert(y, detour), last)
        check_same(found, af.convert(y, last), (x.dtype, first, detour, last))
        check_same(af.convert(found, first), y, (x.dtype, first, last))


@pytest.mark.parametrize("seed", SEEDS)
def test_operations_before_and_after(seed, x64):
    x = np.atleast_1d(some_array(random.Random(seed)))
    x = x if x.size else np.ones((2, 3), x.dtype)
    for (source, target), (name, operation) in itertools.product(
        itertools.permutations(NAMES, 2), OPERATIONS.items()
    ):
        before = af.convert(x, source)
        after = af.convert(before, target)
        one, other = (operation(af.namespace_of(y), y) for y in (before, after))
        if not isinstance(other, np.generic):  # a single number of NumPy is no array
            check_same(af.convert(one, target), other, (x.dtype, source, target, name))


class Tree(Sums):
    observation_space = spaces.Dict({"x": Sums.observation_space, "n": spaces.Discrete(9)})

    def observe(self, xp, state, params):
        return {"x": super().observe(xp, state, params), "n": xp.astype(xp.abs(state), xp.int32)}


class Image(Sums):
    observation_space = spaces.Box(0, 255, (3, 4, 3), np.uint8)

    def observe(self, xp, state, params):
        grey = xp.astype(xp.abs(state) * 50, xp.uint8)
        return xp.broadcast_to(grey[:, None, None, None], (grey.shape[0], 3, 4, 3))


PADDINGS, DTYPES = ("reset", "zero"), (np.int32, np.float32, np.uint8, "float64", "bool")
KERNELS = {
    "RecordEpisodeStatistics": lambda rng: {},
    "NormalizeObservation": lambda rng: {},
    "NormalizeReward": lambda rng: {"gamma": rng.choice([0.5, 0.99])},
    "ClipAction": lambda rng: {},
    "RescaleAction": lambda rng: {"min_action": np.float32(-rng.choice([1, 2])), "max_action": np.float32(0.5)},
    "ClipReward": lambda rng: {rng.choice(["min_reward", "max_reward"]): 0.2},
    "RescaleObservation": lambda rng: {"min_obs": np.float32(-1), "max_obs": np.float32(3)},
    "ReshapeObservation": lambda rng: {"shape": rng.choice([(1, 2), (2,), (12, 3)])},
    "DtypeObservation": lambda rng: {"dtype": rng.choice(DTYPES)},
    "TimeAwareObservation": lambda rng: {"flatten": rng.choice([True, False])},
    "FrameStackObservation": lambda rng: {"stack_size": rng.choice([1, 3]), "padding_type": rng.choice(PADDINGS)},
    "DelayObservation": lambda rng: {"delay": rng.choice([0, 1, 3])},
    "FlattenObservation": lambda rng: {},
    "FilterObservation": lambda rng: {"filter_keys": rng.choice([["obs"], ["x"], ["n", "x"]])},
}  # fmt: skip
OF_ALL = {"NormalizeObservation", "NormalizeReward"}  # whose statistics are those of the batch


def test_all_kernels_are_drawn():
    """But for those of random numbers, of images, and that take a function."""
    others = {"StickyAction", "GrayscaleObservation", *(x for x in kernels.__all__ if x[:9] == "Transform")}  # fmt: skip
    found = {x for x in kernels.__all__ if issubclass(getattr(kernels, x), kernels.Kernel)}
    drawn = others | KERNELS.keys()
    assert found - {"Kernel"} == drawn, f"add {found - {'Kernel'} - drawn} to KERNELS here"


def some_chain(rng, first):
    """Return an environment and a chain of kernels that fits it, with one that is given."""
    while True:
        env = rng.choice([Sums, Tree, Image])()
        others = [name for name in KERNELS if name != first]
        names = [first, *rng.sample(others, rng.choice([1, 2]))]
        chain = {name: KERNELS[name](rng) for name in rng.sample(names, len(names))}
        try:
            wrap(env, *(getattr(kernels, name)(**options) for name, options in chain.items()))
        except (AssertionError, TypeError, ValueError):  # that of older Gymnasiums
            continue
        return env, chain


def steps_of(envs, mode, actions):
    """Return the observation before each step, and what the step returns, in NumPy."""
    before, found = envs.reset(seed=1)[0], []
    xp = af.backend_of(af.flatten(before)[0][0]).name
    for action in actions:
        assert envs.observation_space.contains(before)
        result = envs.step(af.convert(action, xp))
        assert {af.backend_of(x).name for x in af.flatten(result[:4])[0]} == {xp}
        own = af.convert((before, *result[:4], result[4].get("episode", {})), "numpy")
        ended = own[3] | own[4]
        seconds = own[5].pop("t", None)
        assert (seconds is None) or ended.any()
        found.append((*own[:5], {key: np.where(ended, x, 0) for key, x in own[5].items()}))
        before = result[0]
        if mode == "DISABLED" and ended.any():
            before = envs.reset(options={"reset_mask": ended})[0]
    return found


def check_close(one, other, label):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (x.shape, x.dtype.kind) == (y.shape, y.dtype.kind), label
        np.testing.assert_allclose(x, y, rtol=3e-5, atol=3e-5, err_msg=str(label))


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_of_wrappers(seed):
    rng = random.Random(seed)
    env, chain = some_chain(rng, list(KERNELS)[seed % len(KERNELS)])
    mode = rng.choice(["NEXT_STEP", "SAME_STEP", "DISABLED"])
    wrapped = wrap(env, *(getattr(kernels, name)(**options) for name, options in chain.items()))
    actions = np.random.default_rng(seed).uniform(-1, 1, (12, 3)).astype(np.float32)

    def around(envs):
        for name, options in chain.items():
            envs = getattr(vector_wrappers, name)(envs, **options)
        return envs

    made = {"autoreset_mode": mode}
    expected = steps_of(wrapped.make_vec(3, **made), mode, actions)
    order = np.array([2, 0, 1])
    permuted = steps_of(wrapped.make_vec(3, **made), mode, actions[:, order])
    check_close(permuted, jax.tree.map(lambda x: x[order], expected), (seed, chain, "permuted"))
    for xp in ("numpy", "torch", "jax", "array_api_strict"):
        plain = env.make_vec(3, **made)
        ways = {
            "served": wrapped.make_vec(3, xp=xp, **made),
            "around": around(env.make_vec(3, xp=xp, **made)),
            "adapter inside": around(adapters.ArrayConversion(plain, target_xp=xp)),
            "adapter outside": adapters.ArrayConversion(
                around(env.make_vec(3, **made)), target_xp=xp
            ),
        }
        for way, envs in ways.items():
            check_close(steps_of(envs, mode, actions), expected, (seed, chain, mode, xp, way))
    if mode == "SAME_STEP":
        carry = None
        for number, action in enumerate(actions):
            carry, step = rollout(wrapped, given, action, jax.random.key(0), 1, 3, carry=carry)
            one = (step.observation, step.reward, step.terminated, step.truncated)
            before, _, *rest, _ = expected[number]
            check_close(host(jax.tree.map(lambda x: x[0], one)), (before, *rest), (seed, chain))
    if not OF_ALL & chain.keys():
        for index in range(3):
            check_single(env, wrapped, chain, index, actions[:, index], expected)


def given(action, observation, key):
    return jnp.asarray(action), None


def check_single(env, wrapped, chain, index, actions, expected):
    """Fail unless an environment in a batch is what it is by itself, until its episode ends."""
    single = ArrayConversion(env.make(), target_xp="torch")
    for name, options in chain.items():
        single = getattr(wrappers, name)(single, **options)
    for one in (wrapped.make(xp="jax"), single):
        before = one.reset(seed=1)[0]
        for action, results in zip(actions, expected, strict=True):
            own = jax.tree.map(lambda x: x[index], results[:5])
            check_close(host(before), own[0], (chain, index))
            before, reward, *flags, _ = one.step(action)
            np.testing.assert_allclose(float(reward), own[2], rtol=3e-5, atol=3e-5)
            assert flags == [bool(x) for x in own[3:]]
            if any(flags):
                break
