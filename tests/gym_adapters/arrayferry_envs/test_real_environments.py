"""A sample of the environments that `make bridges` steps with every form of action."""

import ale_py
import gymnasium as gym
import pytest
from envs import begun
from real_environments import takes_every_form, takes_every_form_in_batches

gym.register_envs(ale_py)
pytestmark = pytest.mark.filterwarnings("ignore")

SINGLE = [
    pytest.param("ALE/Pong-v5", marks=pytest.mark.long),
    "Blackjack-v1",
    "CartPole-v1",
    "FrozenLake-v1",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "arrayferry/Pendulum-v0",
]


@pytest.mark.parametrize("env_id", SINGLE)
def test_single_environments(env_id):
    takes_every_form(env_id)


OWN = [(name, "vector_entry_point") for name in ("CartPole-v1", "arrayferry/CartPole-v0")]
VECTORS = [("CartPole-v1", "sync"), ("Pendulum-v1", "sync"), *OWN]


@pytest.mark.parametrize(("env_id", "mode"), VECTORS)
def test_vector_environments(env_id, mode):
    takes_every_form_in_batches(lambda: begun(gym.make_vec(env_id, 3, mode), 3), 3)
