"""The environments that are registered with Gymnasium, and Gymnasium's functional environments."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym

from arrayferry.typing import AnyTree


def ids() -> list[str]:
    """Return the ids that are registered so far. Packages register their ids when they are imported."""
    _register_games()
    return list(gym.registry)


def load(name: str, *, max_episode_steps: Any = 0, **options: Any) -> Any:
    """Make an environment by `gymnasium.make`. A module may precede `name`, as in "minigrid:MiniGrid-Empty-5x5-v0"."""
    if name not in gym.registry and ":" not in name:
        _register_games()
    if max_episode_steps != 0:
        options["max_episode_steps"] = -1 if max_episode_steps is None else max_episode_steps
    return gym.make(name, **options)


def _register_games() -> None:
    """Register the games of ALE, if ALE is installed."""
    if find_spec("ale_py"):
        import_module("ale_py")


def adapt(env: Any, params: AnyTree = None) -> Any:
    """Convert a `FuncEnv` to a `FunctionalEnv`."""
    from ._func_env import FuncEnvAdapter

    return FuncEnvAdapter(env, params)
