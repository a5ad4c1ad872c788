"""What errors advise can be done with the function that was called, and helps."""

import ast
import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import arrayferry as af
import arrayferry_gym
import arrayferry_gym.vector

TEXT, BIG, LONG = np.array(["a", "b"]), np.array([2**40, 1]), [2**70, 1]
SPARSE = torch.eye(2).to_sparse()
TO_JAX = {"env_xp": "numpy", "target_xp": "jax"}


class Env(gym.Env):
    """Returns a value as its observation, or among its infos."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, value, told):
        self.results = (np.zeros(2, np.float32), {"v": value}) if told else (value, {})

    def reset(self, *, seed=None, options=None):
        return self.results


class VectorEnv(gym.vector.VectorEnv):
    """Returns values as the four results of a step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space, single_action_space = spaces.Box(-1, 1), spaces.Discrete(2)
    observation_space, action_space = spaces.Box(-1, 1, (2, 1)), spaces.MultiDiscrete([2, 2])

    def __init__(self, index=0, value=None):
        self.results = [np.zeros((2, 1), np.float32), np.zeros(2), *np.zeros((2, 2), bool)]
        if value is not None:
            self.results[index] = value

    def reset(self, *, seed=None, options=None):
        return self.results[0], {}

    def step(self, actions):
        return *self.results, {}


def streamed(value, **options):
    return af.stream({"k": value}, "jax", **options)[0]


def called(value, **options):
    return af.agnostic("jax", **options)(lambda x: x)(value)


def observed(value, **options):
    return arrayferry_gym.ArrayConversion(Env(value, told=False), **TO_JAX | options).reset()


def told(value, **options):
    return arrayferry_gym.ArrayConversion(Env(value, told=True), **TO_JAX | options).reset()


def stepped(value, **options):
    envs = arrayferry_gym.vector.ArrayConversion(VectorEnv(0, value), **TO_JAX | options)
    return envs.step(np.array([0, 1]))


FUNCTIONS = {
    "convert": lambda value, **options: af.convert(value, "jax", **options),
    "tree": lambda value, **options: af.convert({"k": [value]}, "jax", **options),
    "converter": lambda value, **options: af.converter("jax", **options)(value),
    "scalars": lambda value, **options: af.convert(value, "jax", **{"scalars": "convert"} | options),
    "stream": streamed,
    "agnostic": called,
    "observation": observed,
    "infos": told,
    "step": stepped,
}  # fmt: skip
VALUES = {
    "text": TEXT, "too big": BIG, "sparse": SPARSE, "long": LONG, "1e300": [1e300], "buffer": memoryview(b"ab"),
    "masked": np.ma.array([1.0, 2.0], mask=[True, False]), "backwards": np.arange(2.0)[::-1],
}  # fmt: skip


def error_of(call, value, **options):
    try:
        call(value, **options)
    except af.ConversionError as error:
        return error
    return None


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("options", [{}, {"copy": False}, {"narrowing": "forbid"}], ids=str)
@pytest.mark.filterwarnings("ignore:info", "ignore:the library of the environment")
def test_options_that_an_error_names_are_those_of_the_function_and_help(name, value, options):
    call, value = FUNCTIONS[name], VALUES[value]
    error = error_of(call, value, **options)
    for option, written in re.findall(
        r"\b(\w+)=(\"\w+\"|None|True|False)", error.remedy if error else ""
    ):
        after = error_of(call, value, **options | {option: ast.literal_eval(written)})
        assert after is None or (type(after), after.remedy) != (type(error), error.remedy)


@pytest.mark.parametrize("index", range(4))
def test_results_of_a_step_have_their_names(index):
    value = {"k": BIG if index < 2 else np.ma.array([True, False], mask=[True, False])}
    envs = arrayferry_gym.vector.ArrayConversion(VectorEnv(index, value), **TO_JAX)
    name = ("observations", "rewards", "terminated", "truncated")[index]
    with pytest.raises(af.ConversionError, match=rf"^{name}: .*, at \['k'\], from"):
        envs.step(np.array([0, 1]))
