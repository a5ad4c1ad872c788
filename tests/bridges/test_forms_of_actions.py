"""Real environments are stepped with every form of action that agents produce, through an adapter and without one.

`make bridges` runs these tests, in an environment of its own. What the rule for actions calls right, mended or passed on
is never refused, and gives what the canonical action gives; what it calls wrong is refused before anything is stepped.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import arrayferry as af
from arrayferry_gym import ArrayConversion

sys.path.insert(0, str(Path(__file__).parents[1]))
from action_forms import PASSED_ON, UNCOMPARED, WRONG, alike, forms, numbers

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
pytestmark = pytest.mark.filterwarnings("ignore")

PACKAGES = {
    "gymnasium.envs.classic_control": ("", 6), "gymnasium.envs.toy_text": ("", 6), "gymnasium.envs.box2d": ("", 6),
    "gymnasium.envs.mujoco": ("", 12), "gymnasium.envs.phys2d": ("", 4), "minigrid": ("minigrid", 16),
    "ale_py": ("ale_py", 12), "mo_gymnasium": ("mo_gymnasium", 12), "gymnasium_robotics": ("gymnasium_robotics", 14),
    "flappy_bird_gymnasium": ("flappy_bird_gymnasium", 1), "gym_pusht": ("gym_pusht", 1),
    "matrix_mdp": ("matrix_mdp", 1), "buffalo_gym": ("buffalo_gym", 8), "gymnasium_search_race": ("gymnasium_search_race", 4),
    "tetris_gymnasium": ("tetris_gymnasium.envs", 1), "rware": ("rware", 8), "lbforaging": ("lbforaging", 8),
    "memory_gym": ("memory_gym", 8), "popgym": ("popgym", 16), "nle": ("nle", 6), "minihack": ("minihack", 8),
    "highway_env": ("highway_env", 8), "shimmy": ("shimmy", 14), "crafter": ("crafter", 2), "miniworld": ("miniworld", 8),
    "arrayferry_gym": ("arrayferry_gym.functional", 5),
}  # fmt: skip
"""The module that registers the environments of a package, "" for Gymnasium's own, and how many of them are tried."""


def ids() -> list[str]:
    """Return a sample of the environments of each package that is installed, the same each time."""
    for module, _ in PACKAGES.values():
        if module:
            try:
                gym.register_envs(importlib.import_module(module))
            except Exception:
                continue
    chosen = []
    for package, (_, count) in PACKAGES.items():
        own = sorted(
            name
            for name, spec in gym.registry.items()
            if isinstance(spec.entry_point, str) and spec.entry_point.startswith(package)
        )
        chosen += random.Random(0).sample(own, min(count, len(own)))
    return chosen


def made(env_id: str) -> gym.Env:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gym.make(env_id, disable_env_checker=True).unwrapped


def outcome(env, action):
    """Return what a step after a reset gives, as NumPy arrays."""
    env.reset(seed=3)
    np.random.seed(3)
    *results, _ = env.step(action)
    return numbers(*results)


def repeats(env, action, expected):
    """Tell whether an environment repeats itself, which some do not, even with a seed."""
    return all(alike(outcome(env, action), expected) for _ in range(4))


class Counted(gym.Wrapper):
    """Counts the steps that reach an environment."""

    steps = 0

    def step(self, action):
        self.steps += 1
        return self.env.step(action)


@pytest.mark.parametrize("env_id", ids())
def test_every_form_of_action(env_id):
    try:
        env = made(env_id)
        env.reset(seed=3)
        env.action_space.seed(0)
        action = env.action_space.sample()
        expected = outcome(env, action)
    except Exception as error:
        pytest.skip(f"it does not run here: {type(error).__name__}: {error}"[:200])
    counted = Counted(env)
    adapter = ArrayConversion(counted, target_xp="numpy")
    for name, what, value in forms(env.action_space, action):
        before = counted.steps
        try:
            found = outcome(adapter, value)
        except af.ConversionError as error:
            ours = env_id.startswith("arrayferry/") and name == "none"  # for which it has no use
            if what != WRONG and not ours:
                pytest.fail(f"{name} was refused: {error}")
            if counted.steps != before and not ours:
                pytest.fail(f"{name} was refused after the step")
            continue
        except Exception as error:  # the environment's own
            if what != PASSED_ON and name.rpartition(": ")[2] not in UNCOMPARED:
                pytest.fail(f"{name}: {error!r}")
            if what == PASSED_ON and not getattr(error, "__notes__", None):
                pytest.fail(f"{name}: the error {error!r} has no note")
            env = made(env_id)  # it may be broken now
            counted = Counted(env)
            adapter = ArrayConversion(counted, target_xp="numpy")
            continue
        assert what != WRONG, f"{name} was not refused"
        if what != PASSED_ON and name.rpartition(": ")[2] not in UNCOMPARED:
            tries = itertools.chain([found], (outcome(adapter, value) for _ in range(4)))
            assert any(alike(one, expected) for one in tries) or not repeats(
                env, action, expected
            ), name
    env.close()
