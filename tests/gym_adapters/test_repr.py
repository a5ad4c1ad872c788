"""Environments in a shell: short, and without raising."""

import pickle

import gymnasium as gym
import pytest
from envs import begun

import arrayferry as af
import arrayferry_gym
from arrayferry_envs import CartPole, FunctionalSingleEnv, FunctionalVectorEnv, Functions
from arrayferry_gym import vector


def test_what_they_say():
    env = arrayferry_gym.ArrayConversion(gym.make("CartPole-v1").unwrapped, target_xp="torch")
    assert repr(env) == "<ArrayConversion(numpy -> torch)<CartPoleEnv<CartPole-v1>>>"
    assert repr(pickle.loads(pickle.dumps(env))) == repr(env)
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
        vector.ArrayConversion,
        FunctionalSingleEnv,
        FunctionalVectorEnv,
        "Collector",
    ],
)
def test_an_object_whose_constructor_failed(cls):
    if cls == "Collector":
        cls = pytest.importorskip("arrayferry_cluster").Collector
    assert repr(cls.__new__(cls)) == f"<{cls.__name__}, incomplete>"


def test_pytest_leaves_out_frames_inside_an_adapter():
    env = begun(arrayferry_gym.ArrayConversion(gym.make("CartPole-v1"), target_xp="torch"))
    with pytest.raises(af.ConversionError) as caught:
        env.step("left")
    shown = caught.traceback.filter(caught)
    assert shown[-1].name != "test_pytest_leaves_out_frames_inside_an_adapter"
    assert len(shown) <= 4 < len(caught.traceback)
