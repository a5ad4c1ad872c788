"""The suites of docs/how-to/suites.md make environments."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/suites.md"
FILES = dict(re.findall(r'^```py title="(\S+)"\n(.*?)^```$', PAGE.read_text(), re.M | re.S))

MYLIB = '''
from typing import NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np


class Params(NamedTuple):
    speed: float = 0.5
    max_steps_in_episode: int = 7


class Environment:
    """A walk on a line."""

    default_params = Params()
    num_actions = 2

    def reset(self, key, params):
        return jnp.zeros(1), (jnp.zeros(1), 0)

    def step(self, key, state, action, params):
        place, count = state[0] + params.speed * (2 * action - 1), state[1] + 1
        return place, (place, count), place[0], count >= params.max_steps_in_episode


def names():
    return ["Walk"]


def make(name):
    return {"Walk": Environment}[name]()


class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, name):
        assert name == "Walk"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}
'''

USE = """
import arrayferry as af
from arrayferry_envs import make_vec
from games import GamesSuite

class Games:
    @af.hookimpl(optionalhook=True)
    def arrayferry_suites():
        return [GamesSuite()]

af.registry.register(Games)

def lengths(env_id, **options):
    envs = make_vec(env_id, 2, autoreset_mode="SameStep", **options)
    envs.reset(seed=1)
    for length in range(1, 120):
        _, rewards, terminated, truncated, _ = envs.step([0, 1])
        if length == 1:
            print(rewards.tolist())
        if terminated.any() or truncated.any():
            return length, truncated.tolist(), terminated.tolist()

print(lengths("mylib/Walk"))
print(lengths("mylib/Walk", max_episode_steps=9, params={"speed": 2.0}))
print(lengths("games/Walk"))
print(lengths("games/Walk", max_episode_steps=3))
print(lengths("games/Walk", max_episode_steps=None))
"""


@pytest.mark.long
def test_the_suites_of_the_page(tmp_path):
    info = tmp_path / "arrayferry_mylib-1.dist-info"
    (tmp_path / "arrayferry_mylib").mkdir()
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: arrayferry-mylib\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[arrayferry]\nmylib = arrayferry_mylib\n")
    for name in ("arrayferry_mylib/__init__.py", "arrayferry_mylib/env.py", "games.py"):
        (tmp_path / name).write_text(FILES[name])
    (tmp_path / "mylib.py").write_text(MYLIB)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", USE]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "[-0.5, 0.5]", "(7, [True, True], [False, False])",
        "[-2.0, 2.0]", "(9, [True, True], [False, False])",
        "[1.0, 1.0]", "(100, [True, True], [False, False])",
        "[1.0, 1.0]", "(3, [True, True], [False, False])",
        "[1.0, 1.0]", "None",
    ], done.stderr  # fmt: skip
