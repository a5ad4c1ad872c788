"""What works with Gymnasium's own machinery goes on working: its vector environments, wrappers and checks."""

import functools
import sys
import types
from contextlib import closing

import gymnasium as gym
import jax
import numpy as np
import pytest
import torch
from envs import Samples
from gymnasium import spaces, wrappers
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from gymnasium.wrappers.utils import create_zero_array

import arrayferry as af
from arrayferry_gym import ArrayConversion, NumpyToTorch, vector

LIBRARIES = {"torch": torch.Tensor, "jax": jax.Array, "numpy": np.ndarray}
PARTS = spaces.Dict(
    a=spaces.Box(-1, 1, (2,), np.float32),
    b=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
    # before Gymnasium 1.4, a seed repeats the characters of a text only in the same process
    c=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Text(4, charset="a")]),
)


def samples(space=PARTS):
    return Samples(space, spaces.Discrete(2))


def assert_same(*trees):
    numbers = (af.convert(tree, "numpy", scalars="convert") for tree in trees)
    np.testing.assert_equal(*(af.flatten(tree, everything=True)[0] for tree in numbers))


def kinds(tree):
    return {type(x) for x in af.flatten(tree)[0]}


long = pytest.mark.long
PIPES = functools.partial(AsyncVectorEnv, shared_memory=False)
# JAX may not be used after a fork.
SPAWNED_PIPES = functools.partial(AsyncVectorEnv, shared_memory=False, context="spawn")
SPAWNED = functools.partial(AsyncVectorEnv, context="spawn")


@pytest.mark.parametrize(
    ("vectorise", "library"),
    [
        (SyncVectorEnv, "torch"), (SyncVectorEnv, "jax"), (SyncVectorEnv, "numpy"),
        (functools.partial(SyncVectorEnv, copy=False), "torch"),
        pytest.param(PIPES, "torch", marks=long), pytest.param(AsyncVectorEnv, "torch", marks=long),
        pytest.param(SPAWNED, "jax", marks=long),
        pytest.param(AsyncVectorEnv, "numpy", marks=long), pytest.param(SPAWNED_PIPES, "jax", marks=long),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:os.fork")
def test_vector_environments_of_adapters(vectorise, library):
    adapted = vectorise([lambda: ArrayConversion(samples(), target_xp=library)] * 2)
    # JAX has no arrays over memory that changes, so its agents get NumPy's
    shared = isinstance(adapted, AsyncVectorEnv) and adapted.shared_memory
    expected = np.ndarray if shared and library == "jax" else LIBRARIES[library]
    with closing(adapted) as ours, closing(vectorise([samples] * 2)) as plain:
        for act in (lambda envs: envs.reset(seed=3), lambda envs: envs.step(np.array([0, 1]))):
            found = act(ours)[0]
            assert_same(found, act(plain)[0])
            assert all(issubclass(kind, expected) for kind in kinds(found))
            assert ours.observation_space.contains(found)
        sample = ours.observation_space.sample()
        assert kinds(sample) == kinds(found)
        assert all(
            issubclass(kind, LIBRARIES[library]) for kind in kinds(ours.action_space.sample())
        )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:os.fork")
def test_tensors_over_shared_memory():
    makers = [lambda: NumpyToTorch(samples(PARTS["a"]))] * 2
    with closing(AsyncVectorEnv(makers, copy=False)) as envs:
        first, _ = envs.reset(seed=1)
        before = first.clone()
        second, *_ = envs.step(torch.tensor([0, 1]))
        assert second.data_ptr() == first.data_ptr()
        assert not torch.equal(first, before)


@pytest.mark.parametrize("library", LIBRARIES)
def test_observations_that_differ_in_bounds(library):
    envs = [samples(spaces.Box(-bound, bound, (2,))) for bound in (2, 3)]
    make = [lambda env=env: ArrayConversion(env, target_xp=library) for env in envs]
    envs = SyncVectorEnv(make, observation_mode="different")
    observations, _ = envs.reset(seed=1)
    assert isinstance(observations, LIBRARIES[library])
    assert envs.observation_space.high[:, 0].tolist() == [2, 3]
    assert isinstance(envs.observation_space.sample(), LIBRARIES[library])
    assert envs.observation_space.contains(observations)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "space",
    [spaces.Box(-1, 1, (2, 3), np.float32), spaces.Discrete(4, start=2), spaces.MultiDiscrete([2, 3]),
     spaces.MultiBinary((2, 2)), spaces.Text(5), PARTS, spaces.Dict(a=PARTS["a"], b=PARTS["b"]),
     spaces.OneOf([spaces.Discrete(2), PARTS["a"]]), spaces.Sequence(PARTS["a"])],
    ids=str,
)  # fmt: skip
def test_functions_of_spaces(space, library):
    space.seed(0)
    ours = ArrayConversion(samples(space), target_xp=library).observation_space
    numpy = [space.sample() for _ in range(3)]
    values = [af.convert(x, library, scalars="convert") for x in numpy]
    assert type(ours) is not type(space)

    def check(found, expected):
        assert_same(found, expected)
        assert all(issubclass(kind, LIBRARIES[library]) for kind in kinds(found))

    batched = batch_space(ours, 3)
    assert batched == batch_space(space, 3)
    batch = concatenate(ours, values, create_empty_array(ours, 3))
    check(batch, concatenate(space, numpy, create_empty_array(space, 3)))
    assert batched.contains(batch)
    check(create_empty_array(ours, 2), create_empty_array(space, 2))
    check(create_zero_array(ours), create_zero_array(space))
    assert flatten_space(ours) == flatten_space(space)
    if getattr(space, "is_np_flattenable", True):
        assert flatdim(ours) == flatdim(space)
        check(flatten(ours, values[0]), flatten(space, numpy[0]))
        if space is not PARTS:  # Gymnasium cannot read a text out of floats
            assert_same(unflatten(ours, flatten(ours, values[0])), numpy[0])


def test_the_library_is_unknown_before_the_first_action():
    env = wrappers.FrameStackObservation(ArrayConversion(gym.make("CartPole-v1")), 2)
    assert isinstance(env.reset()[0], np.ndarray)
    env.step(torch.tensor(1))
    observation, *_ = env.step(torch.tensor(1))
    assert isinstance(observation, torch.Tensor)


def test_our_adapters_are_gymnasiums():
    if not hasattr(wrappers, "ArrayConversion"):
        pytest.skip("this Gymnasium has no ArrayConversion")
    assert isinstance(NumpyToTorch(gym.make("CartPole-v1")), wrappers.ArrayConversion)
    envs = vector.NumpyToTorch(gym.make_vec("CartPole-v1"), device="cpu")
    assert isinstance(envs, wrappers.vector.ArrayConversion)
    assert envs.device == "cpu"
    assert NumpyToTorch(gym.make("CartPole-v1")).device is None


def test_gymnasiums_class_is_not_needed(monkeypatch):
    from arrayferry_gym._adapters.adapter import gymnasium_class

    monkeypatch.setitem(sys.modules, "gymnasium.gone", types.ModuleType("gymnasium.gone"))
    assert gymnasium_class("gymnasium.gone", gym.Wrapper) is gym.Wrapper
