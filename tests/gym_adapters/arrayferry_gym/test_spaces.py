"""Spaces that describe the converted arrays."""

import copy
import inspect
import pickle
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
import torch
from envs import Samples
from gymnasium import spaces
from gymnasium.spaces.utils import flatten_space
from gymnasium.vector.utils import batch_space, iterate
from interrupts import quick_turns

import arrayferry as af
from arrayferry_gym import ArrayConversion, NumpyToTorch
from arrayferry_gym._adapters.spaces import converted_space
from arrayferry_gym._options.libraries import Libraries
from arrayferry_gym._spaces.foreign import gymnasium_space

AGENTS = ("numpy", "torch", "jax", "array_api_strict")

SPACES = {
    "Discrete": spaces.Discrete(5, start=1),
    "Box": spaces.Box(-1, 1, (3,), np.float32),
    "Box64": spaces.Box(-0.1, 0.1, (2, 2), np.float64),
    "Image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiBinary": spaces.MultiBinary(4),
    "Dict": spaces.Dict(a=spaces.Discrete(3), b=spaces.Dict(c=spaces.Box(0, 1, (2,)))),
    "Tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
    "Sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    "Text": spaces.Text(6),
}

if "dtype" in inspect.signature(spaces.Discrete.__init__).parameters:  # since Gymnasium 1.2
    SPACES["Discrete32"] = spaces.Discrete(5, dtype=np.int32)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", SPACES)
def test_every_space(name, agent):
    env = ArrayConversion(Samples(SPACES[name]), target_xp=agent)
    observation, info = env.reset(seed=1)
    assert info == {"word": "text", "number": 3}
    for _ in range(5):
        assert env.observation_space.contains(observation)
        assert all(af.backend_of(x).name == agent for x in af.flatten(observation)[0])
        action = env.action_space.sample()
        assert env.action_space.contains(action)
        observation, reward, terminated, truncated, info = env.step(action)
        assert type(reward) is float
        assert terminated is False
        assert truncated is False
        assert info == {"word": "text"}


@pytest.mark.parametrize("name", SPACES)
def test_converted_spaces_match_their_originals(name):
    original = SPACES[name]
    env = NumpyToTorch(Samples(original))
    space = env.action_space
    assert isinstance(space, type(original))
    assert space == original
    assert original == space
    assert type(original).__hash__ is type(space).__hash__
    assert repr(space) == repr(original)
    assert space.shape == original.shape
    assert space.dtype == original.dtype
    assert env.action_space is space
    plain = copy.deepcopy(original)
    assert space.seed(7) == plain.seed(7)
    for _ in range(3):
        ours, theirs = af.convert([space.sample(), plain.sample()], "numpy")
        assert repr(ours) == repr(theirs)
    for again in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert again == space
        assert again.contains(again.sample())
    batch = gym.vector.utils.batch_space(space, 3)
    assert batch == gym.vector.utils.batch_space(original, 3)
    samples = [space.sample() for _ in range(2)]
    read = space.from_jsonable(space.to_jsonable(samples))
    assert len(read) == 2
    assert not space.contains(object())


def test_what_a_converted_space_does_not_contain():
    env = NumpyToTorch(Samples(SPACES["Dict"]))
    space = env.observation_space
    good = {"a": torch.tensor(1), "b": {"c": torch.ones(2)}}
    assert space.contains(good)
    for wrong in (
        {**good, "a": torch.tensor(3)}, {**good, "more": 1}, {"a": good["a"]}, [good], torch.ones(2),
        {**good, "b": {"c": torch.full((2,), 1.5)}}, {**good, "b": {"c": torch.ones(3)}}, {**good, "b": torch.ones(2)},
    ):  # fmt: skip
        assert not space.contains(wrong)
    space = NumpyToTorch(Samples(SPACES["Tuple"])).observation_space
    good = (torch.tensor(1), torch.ones(2))
    assert space.contains(good)
    parts = (torch.tensor(3), good[1]), (good[0], torch.ones(3))
    for wrong in (good[:1], (*good, 1), *parts, good[1]):
        assert not space.contains(wrong)


def test_parts_of_composite_spaces_are_converted_too():
    env = NumpyToTorch(Samples(SPACES["Dict"]))
    assert isinstance(env.action_space["b"]["c"].sample(), torch.Tensor)
    env = NumpyToTorch(Samples(SPACES["Tuple"]))
    assert isinstance(env.action_space[1].sample(), torch.Tensor)
    assert isinstance(
        NumpyToTorch(Samples(SPACES["Sequence"])).action_space.feature_space.sample(), torch.Tensor
    )


def test_samples_with_a_mask_of_the_agent():
    space = NumpyToTorch(Samples(SPACES["Discrete"])).action_space
    mask = torch.tensor([0, 0, 1, 0, 0], dtype=torch.int8)
    assert all(int(space.sample(mask=mask)) == 3 for _ in range(5))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("agent", ["jax", "torch"])
def test_samples_by_probabilities_of_the_agent(agent, dtype):
    """They need not have the sum of 1 in double precision."""
    env = ArrayConversion(Samples(SPACES["Discrete"]), target_xp=agent)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.0, 0.4], dtype=getattr(torch, dtype))
    given = af.convert(weights, agent, narrowing="allow")
    space = env.action_space
    space.seed(1)
    first = space.start
    seen = {int(space.sample(probability=given)) - int(first) for _ in range(60)}
    assert seen == {0, 1, 2, 4}
    many = ArrayConversion(Samples(spaces.MultiBinary(3)), target_xp=agent).action_space
    certain = af.convert(np.float32([1, 0, 1]), agent)
    assert af.convert(many.sample(probability=certain), "numpy").tolist() == [1, 0, 1]


def test_a_replaced_space_is_noticed():
    env = NumpyToTorch(Samples(SPACES["Discrete"]))
    assert env.action_space == SPACES["Discrete"]
    env.env.action_space = SPACES["Box"]
    assert env.action_space == SPACES["Box"]
    env.action_space = SPACES["Text"]
    assert env.action_space is SPACES["Text"]


class Registered(spaces.Tuple):
    """A class of its own, that Gymnasium's `iterate` knows."""


iterate.register(Registered, iterate.registry[spaces.Tuple])

BATCHED = {
    **SPACES,
    "nested": spaces.Tuple([SPACES["Dict"], spaces.Tuple([spaces.Discrete(3), SPACES["Tuple"]])]),
    "Tuple in Dict": spaces.Dict(a=SPACES["Tuple"], b=spaces.Discrete(2)),
    "Tuple of Text": spaces.Tuple([spaces.Text(4), spaces.Discrete(3)]),
}


@pytest.mark.parametrize("agent", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_is_iterated_by_environments(agent, name):
    original = batch_space(BATCHED[name], 4)
    if name == "Tuple in Dict":
        original = spaces.Tuple([original, Registered([batch_space(spaces.Discrete(9), 4)])])
    original.seed(1)
    sample = original.sample()
    libraries = Libraries({}, "numpy", agent, None, None)
    space = converted_space(original, libraries)
    wanted = af.convert(af.convert([*iterate(original, sample)], agent), "numpy")
    assert len(wanted) == 4
    for own in (space, copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        found = [*iterate(own, libraries.to_agent(sample))]
        np.testing.assert_equal(af.convert(found, "numpy"), wanted)
        leaves = af.flatten(found)[0]
        assert all(af.backend_of(leaf).name == agent for leaf in leaves)


@pytest.mark.long
def test_threads_that_meet_a_class_of_spaces_at_once():
    with quick_turns():
        for _ in range(50):

            class Own(spaces.Box):
                pass

            barrier = threading.Barrier(8)

            def made(own, barrier=barrier):
                barrier.wait()
                env = gym.Env()
                env.observation_space = env.action_space = own(0, 1, (2,), np.float32)
                space = ArrayConversion(env, target_xp="torch").observation_space
                batch_space(space, 2), flatten_space(space.original)
                return type(space)

            with ThreadPoolExecutor(8) as pool:
                assert len(set(pool.map(made, [Own] * 8))) == 1


def test_spaces_for_numpy_are_pickled_as_gymnasiums_own():
    env = ArrayConversion(gym.make("Pendulum-v1"), env_xp="numpy", target_xp="numpy")
    for space in (env.observation_space, env.action_space, batch_space(env.action_space, 2)):
        pickled = pickle.dumps(space)
        assert b"arrayferry" not in pickled
        loaded = pickle.loads(pickled)
        assert type(loaded) is spaces.Box
        assert loaded == space
    env = pickle.loads(pickle.dumps(env))
    assert type(env.observation_space) is not spaces.Box
    tensors = NumpyToTorch(gym.make("Pendulum-v1")).observation_space
    assert isinstance(pickle.loads(pickle.dumps(tensors)).sample(), torch.Tensor)


def test_spaces_of_other_libraries_keep_the_bounds_of_each_number():
    low, high = np.array([0, 1], np.float32), np.array([2, 3], np.float32)
    space = types.SimpleNamespace(low=low, high=high, shape=(2,), dtype=np.float32)
    assert gymnasium_space(space) == spaces.Box(low, high)
