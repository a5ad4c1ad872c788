"""Environments in a shell: short, and without raising."""

import gymnasium as gym
import pytest

from arrayferry_envs import CartPole, FunctionalSingleEnv, FunctionalVectorEnv, Functions
from arrayferry_gym import vector


def test_what_they_say():
    assert repr(CartPole()) == "<CartPole>"
    assert len(repr(Functions(CartPole()))) < 100
    assert repr(FunctionalSingleEnv(CartPole(), xp="torch")) == (
        "<FunctionalSingleEnv(<CartPole>, xp='torch')>"
    )


@pytest.mark.long
def test_an_environment_of_ours_without_an_import(run_python):
    script = "import gymnasium as gym; print(repr(gym.make({!r}, xp='numpy').unwrapped))"
    out = run_python(script.format("arrayferry_envs:arrayferry/CartPole-v0"))
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
