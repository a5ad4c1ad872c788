"""Environments in a shell: short, and without raising."""

from __future__ import annotations

import pickle
import re

import gymnasium as gym
import pytest

import arrayferry as af
import arrayferry_gym
from arrayferry_gym import vector
from arrayferry_gym.functional import (
    CartPole,
    FunctionalSingleEnv,
    FunctionalVectorEnv,
    Functions,
    HostFunctions,
    Pendulum,
)


def test_what_they_say():
    env = arrayferry_gym.ArrayConversion(gym.make("CartPole-v1").unwrapped, target_xp="torch")
    assert repr(env) == "<ArrayConversion(numpy -> torch)<CartPoleEnv<CartPole-v1>>>"
    assert repr(pickle.loads(pickle.dumps(env))) == repr(env)
    assert repr(CartPole()) == "<CartPole>"
    assert repr(FunctionalSingleEnv(CartPole(), xp="torch")) == (
        "<FunctionalSingleEnv(<CartPole>, xp='torch')>"
    )


@pytest.mark.long
def test_an_environment_of_ours_without_an_import(run_python):
    script = "import gymnasium as gym; print(repr(gym.make({!r}, xp='numpy').unwrapped))"
    out = run_python(script.format("arrayferry_gym:arrayferry/CartPole-v0"))
    assert out == "<FunctionalSingleEnv(<CartPole>, xp='numpy')>\n"


def test_closed_environments():
    single, batch = FunctionalSingleEnv(CartPole()), FunctionalVectorEnv(CartPole(), 2)
    for env in (single, batch):
        before = repr(env)
        env.reset(seed=1)
        env.close()
        assert repr(env) == before
    envs = vector.NumpyToTorch(gym.make_vec("CartPole-v1", 2))
    envs.close()
    assert repr(envs).startswith("<NumpyToTorch(numpy -> torch)")


def test_an_environment_that_cannot_be_written():
    class Odd(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def __str__(self):
            raise RuntimeError("it was closed")

    assert repr(arrayferry_gym.ArrayConversion(Odd())) == "<ArrayConversion, incomplete>"


@pytest.mark.parametrize(
    "cls",
    [
        arrayferry_gym.ArrayConversion,
        arrayferry_gym.NumpyToTorch,
        vector.ArrayConversion,
        FunctionalSingleEnv,
        FunctionalVectorEnv,
        HostFunctions,
    ],
)
def test_an_object_whose_constructor_failed(cls):
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"


def test_functions():
    assert len(repr(Functions(CartPole()))) < 100


def test_environments_on_a_cluster():
    cls = pytest.importorskip("arrayferry_gym.distributed").Collector
    assert repr(cls.__new__(cls)) == "<Collector, incomplete>"


def cells(value):
    """Return the cells of what a notebook shows."""
    return re.findall("<td[^>]*>(.*?)</td>", value._repr_html_())


def facts(value):
    """Return the names and values that a notebook shows."""
    shown = cells(value)
    return dict(zip(shown[::2], shown[1::2], strict=True))


def test_in_notebooks():
    env = arrayferry_gym.NumpyToTorch(gym.make("CartPole-v1").unwrapped, check_actions="strict")
    shown = facts(env)
    assert env._repr_html_().startswith("<div><strong>NumpyToTorch</strong>")
    assert shown.pop("observation space").startswith("Box(")
    assert shown == {
        "environment": "&lt;CartPoleEnv&lt;CartPole-v1&gt;&gt;",
        "arrays": "numpy -&gt; torch",
        "action space": "Discrete(2)",
        "check_actions": "strict",
    }
    envs = vector.ArrayConversion(gym.make_vec("CartPole-v1", num_envs=3), target_xp="jax")
    assert cells(envs)[2:8] == [
        *("arrays", "numpy -&gt; jax"),
        *("environments", "3"),
        *("autoreset mode", "NEXT_STEP"),
    ]
    assert cells(envs)[-3] == "Discrete(2)"


def test_in_notebooks_a_functional_environment():
    envs = CartPole().make_vec(3, xp="jax", autoreset_mode="SameStep", max_episode_steps=None)
    assert envs._repr_html_().startswith("<div><strong>FunctionalVectorEnv</strong>")
    shown = facts(envs)
    assert shown.pop("observation space").startswith("Box(")
    assert shown.pop("parameters").startswith("CartPoleParams(gravity=9.8, ")
    assert shown == {
        "environment": "&lt;CartPole&gt;",
        "arrays": "jax",
        "environments": "3",
        "autoreset mode": "SAME_STEP",
        "action space": "Discrete(2)",
        "limit of an episode": "none",
    }
    shown = facts(Pendulum().make())
    assert shown["limit of an episode"] == "200 steps"
    assert "environments" not in shown


def test_in_notebooks_an_incomplete_environment_is_text():
    for cls in (arrayferry_gym.ArrayConversion, vector.ArrayConversion, FunctionalVectorEnv):
        assert cls.__new__(cls)._repr_html_() is None


def test_errors_in_ipython_end_in_the_adapter():
    env = arrayferry_gym.ArrayConversion(gym.make("CartPole-v1"), target_xp="torch")
    env.reset()
    with pytest.raises(af.ArrayFerryError) as caught:
        env.step("left")
    lines = [line for line in caught.value._render_traceback_() if line.startswith('  File "')]
    assert len(lines) == 2
    assert "in step\n" in lines[1]
