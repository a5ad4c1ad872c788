"""The ids are registered when the package is imported, as Gymnasium does for "arrayferry_classic:arrayferry/Taxi-v0"."""

import subprocess
import sys

import arrayferry_classic
import gymnasium as gym
import pytest
from gymnasium.envs.registration import load_env_creator

IDS = [
    "Acrobot",
    "Blackjack",
    "CliffWalking",
    "CliffWalkingSlippery",
    "FrozenLake",
    "FrozenLake8x8",
    "MountainCar",
    "MountainCarContinuous",
    "Taxi",
]


@pytest.mark.parametrize("name", IDS)
def test_ids_have_the_limits_of_their_classes(name):
    env_id, spec = f"arrayferry_classic:arrayferry/{name}-v0", gym.spec(f"arrayferry/{name}-v0")
    env = load_env_creator(spec.kwargs["functional"])
    assert env.__name__ == name
    assert spec.max_episode_steps == env.max_episode_steps
    assert gym.make(env_id).unwrapped.functional == env()
    envs = gym.make_vec(env_id, num_envs=3, xp="torch")
    assert envs.unwrapped.functional == env()


SCRIPT = """
import sys
import gymnasium as gym
import arrayferry_classic
assert not [name for name in sys.modules if name.startswith("arrayferry_classic.")]
gym.make("arrayferry/Taxi-v0").reset(seed=1)
assert "arrayferry_classic.taxi" in sys.modules
assert "arrayferry_classic.blackjack" not in sys.modules
"""


def test_an_id_imports_its_environment_when_it_is_made():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_gymnasium_names_a_missing_package():
    with pytest.raises(ModuleNotFoundError, match="arrayferry_missing"):
        gym.make("arrayferry_missing:arrayferry/Taxi-v0")


def test_names():
    for name in arrayferry_classic.__all__:
        assert getattr(arrayferry_classic, name).__name__ == name
    with pytest.raises(AttributeError, match="Chess"):
        _ = arrayferry_classic.Chess
