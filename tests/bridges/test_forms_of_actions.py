"""Environments of many packages are stepped with every form of action. `make bridges` runs these tests."""

from __future__ import annotations

import importlib
import os
import random

import gymnasium as gym
import pytest
from envs import begun
from real_environments import UnusableError, takes_every_form, takes_every_form_in_batches

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
    "arrayferry_gym": ("arrayferry_envs", 5),
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


def check(takes, *arguments):
    try:
        takes(*arguments)
    except UnusableError as error:
        pytest.skip(f"it does not run here: {error}")


@pytest.mark.parametrize("env_id", ids())
def test_every_form_of_action(env_id):
    check(takes_every_form, env_id)


# Vector environments


N = 3
GYMNASIUM = (
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "FrozenLake-v1", "Taxi-v4",
    "CliffWalking-v1", "Blackjack-v1", "LunarLander-v3", "LunarLanderContinuous-v3", "HalfCheetah-v5", "Hopper-v5",
    "Swimmer-v5", "phys2d/CartPole-v1", "phys2d/Pendulum-v0", "arrayferry/CartPole-v0", "arrayferry/Pendulum-v0",
)  # fmt: skip
OTHERS = {
    "minigrid": (
        "MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-MemoryS7-v0", "MiniGrid-Unlock-v0", "BabyAI-GoToObj-v0",
    ),
    "ale_py": ("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Qbert-v5", "ALE/Seaquest-v5"),
    "flappy_bird_gymnasium": ("FlappyBird-v0",), "gymnasium_robotics": ("FetchReach-v4", "FetchPush-v4", "PointMaze_UMaze-v3", "PointMaze_Medium-v3"),
    "popgym": (
        "popgym-RepeatFirstEasy-v0", "popgym-BattleshipEasy-v0", "popgym-CountRecallEasy-v0", "popgym-MineSweeperEasy-v0",
        "popgym-NoisyPositionOnlyPendulumEasy-v0",
    ), "memory_gym": ("MysteryPath-v0", "SearingSpotlights-v0"),
    "highway_env": ("highway-v0",), "shimmy": ("dm_control/cartpole-swingup-v0",),
    "miniworld": ("MiniWorld-OneRoom-v0",), "crafter": ("CrafterReward-v1",), "nle": ("NetHackScore-v0",),
}  # fmt: skip
ENVPOOL = (
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "FrozenLake-v1", "Taxi-v3",
    "LunarLander-v2", "HalfCheetah-v4", "Hopper-v4", "Swimmer-v4", "Walker2d-v4", "CliffWalking-v0", "Blackjack-v1",
    "Catch-v0",
)  # fmt: skip


def of_gymnasium(env_id, module=""):
    if module:
        gym.register_envs(importlib.import_module(module))
    return begun(gym.make_vec(env_id, num_envs=N, vectorization_mode="sync"), 3)


def of_envpool(env_id):
    import envpool

    return begun(envpool.make(env_id, env_type="gymnasium", num_envs=N, seed=3), None)


def of_supersuit(copies):
    import supersuit
    from pettingzoo.butterfly import pistonball_v6

    envs = supersuit.pettingzoo_env_to_vec_env_v1(pistonball_v6.parallel_env(n_pistons=N // copies))
    return begun(supersuit.concat_vec_envs_v1(envs, copies, num_cpus=0, base_class="gymnasium"), 3)


CASES = {f"gymnasium {name}": (of_gymnasium, name) for name in GYMNASIUM}
CASES |= {
    f"{module} {name}": (of_gymnasium, name, module)
    for module, names in OTHERS.items()
    for name in names
}
CASES |= {f"envpool {name}": (of_envpool, name) for name in ENVPOOL}
CASES |= {f"supersuit {copies}": (of_supersuit, copies) for copies in (1, 3)}


@pytest.mark.parametrize("case", CASES)
def test_every_form_of_actions_in_batches(case):
    make, *arguments = CASES[case]
    check(takes_every_form_in_batches, lambda: make(*arguments), N)
