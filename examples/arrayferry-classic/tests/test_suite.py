"""The suite, which is installed as a plugin."""

from arrayferry_audit import SuiteContract
from arrayferry_envs import make_functional, suites


class TestClassic(SuiteContract):
    suite = "classic"
    sample = ("Acrobot", "FrozenLake", "Taxi")
    options = {"max_episode_steps": 20}


def test_all_can_be_made():
    for env_id in suites("classic"):
        assert type(make_functional(env_id)).__name__ == env_id.partition("/")[2]
