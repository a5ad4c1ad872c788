"""Atari games: the vector environment of ALE, which steps many games in one process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper

import arrayferry as af
from arrayferry.typing import AnyTree
from arrayferry_gym.extending import autoreset_mode_of

from ._masks import with_masks

NO_LIMIT = 2**30
FOR_TWO = {"combat", "joust", "maze_craze", "warlords"}
"""Games without a version for one player. Making such a game in ALE ends the process."""
MODES = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


class Games(VectorWrapper[Any, Any, Any]):
    """A batch of ALE games with float32 rewards, and with masks in infos."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`."""
        observations, infos = self.env.reset(**options)
        return observations, with_masks(infos)

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        observations, rewards, *flags, infos = self.env.step(actions)
        return observations, rewards.astype(np.float32), *flags, with_masks(infos)


def ids() -> list[str]:
    """Return the names of the games for one player."""
    names = import_module("ale_py.roms").get_all_rom_ids()
    return [name for name in names if name not in FOR_TWO]


def load(
    name: str,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode,
    max_episode_steps: Any = 0,
    **options: Any,
) -> Any:
    """Make a batch of games. The step limit is converted to ALE's limit of frames."""
    autoreset_mode_of(autoreset_mode, MODES, "the vector environment of ALE")
    if name in FOR_TWO:
        raise af.OptionError(
            f"{name} of ALE is for two players", remedy="Use a game for one player."
        )
    if max_episode_steps != 0:
        limit = max_episode_steps or NO_LIMIT
        options["max_num_frames_per_episode"] = min(limit * options.get("frameskip", 4), NO_LIMIT)
    make = import_module("ale_py.vector_env").AtariVectorEnv
    envs = make(name, num_envs, autoreset_mode=autoreset_mode, **options)
    envs.metadata = {**envs.metadata, "autoreset_mode": autoreset_mode}
    return Games(envs)
