"""Environments of many packages are stepped with every form of action. `make bridges` runs these tests."""

from __future__ import annotations

import importlib
import os
import random

import gymnasium as gym
import pytest
from real_environments import UnusableError, takes_every_form

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
pytestmark = pytest.mark.filterwarnings("ignore")

PACKAGES = {
    "gymnasium.envs.classic_control": ("", 6), "gymnasium.envs.toy_text": ("", 6), "gymnasium.envs.box2d": ("", 6),
    "gymnasium.envs.mujoco": ("", 12), "gymnasium.envs.phys2d": ("", 4), "minigrid": ("minigrid", 22),
    "ale_py": ("ale_py", 16), "mo_gymnasium": ("mo_gymnasium", 12), "gymnasium_robotics": ("gymnasium_robotics", 14),
    "flappy_bird_gymnasium": ("flappy_bird_gymnasium", 1), "gym_pusht": ("gym_pusht", 1),
    "matrix_mdp": ("matrix_mdp", 1), "buffalo_gym": ("buffalo_gym", 8), "gymnasium_search_race": ("gymnasium_search_race", 4),
    "tetris_gymnasium": ("tetris_gymnasium.envs", 1), "rware": ("rware", 8), "lbforaging": ("lbforaging", 8),
    "memory_gym": ("memory_gym", 8), "popgym": ("popgym", 20), "nle": ("nle", 6), "minihack": ("minihack", 8),
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


@pytest.mark.parametrize("env_id", ids())
def test_every_form_of_action(env_id):
    try:
        takes_every_form(env_id)
    except UnusableError as error:
        pytest.skip(f"it does not run here: {error}")
