"""Vector environments of several packages are stepped with every form of action, as in `test_forms_of_actions`."""

from __future__ import annotations

import importlib
import os

import gymnasium as gym
import pytest
from real_environments import UnusableError, takes_every_form_in_batches

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
pytestmark = pytest.mark.filterwarnings("ignore")

N = 3
GYMNASIUM = (
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "FrozenLake-v1", "Taxi-v4",
    "CliffWalking-v1", "Blackjack-v1", "LunarLander-v3", "LunarLanderContinuous-v3", "HalfCheetah-v5", "Hopper-v5",
    "Swimmer-v5", "phys2d/CartPole-v1", "phys2d/Pendulum-v0", "arrayferry/CartPole-v0", "arrayferry/Pendulum-v0",
    "arrayferry/MountainCar-v0",
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
    envs = gym.make_vec(env_id, num_envs=N, vectorization_mode="sync")
    envs.reset(seed=3)
    return envs


def of_envpool(env_id):
    import envpool

    envs = envpool.make(env_id, env_type="gymnasium", num_envs=N, seed=3)
    envs.reset()
    return envs


def of_supersuit(copies):
    import supersuit
    from pettingzoo.butterfly import pistonball_v6

    envs = supersuit.pettingzoo_env_to_vec_env_v1(pistonball_v6.parallel_env(n_pistons=N // copies))
    envs = supersuit.concat_vec_envs_v1(envs, copies, num_cpus=0, base_class="gymnasium")
    envs.reset(seed=3)
    return envs


CASES = {f"gymnasium {name}": (of_gymnasium, name) for name in GYMNASIUM}
CASES |= {
    f"{module} {name}": (of_gymnasium, name, module)
    for module, names in OTHERS.items()
    for name in names
}
CASES |= {f"envpool {name}": (of_envpool, name) for name in ENVPOOL}
CASES |= {f"supersuit {copies}": (of_supersuit, copies) for copies in (1, 3)}


@pytest.mark.parametrize("case", CASES)
def test_every_form_of_actions(case):
    make, *arguments = CASES[case]
    try:
        takes_every_form_in_batches(lambda: make(*arguments), N)
    except UnusableError as error:
        pytest.skip(f"it does not run here: {error}")
