"""Options that several drivers share: the limit of steps, and when environments are reset."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

import arrayferry as af

from ._base import FunctionalEnv

__all__ = ["UNSET", "Unset", "limit_of", "mode_of"]


class Unset:
    """The default of an option whose None means something."""

    def __repr__(self) -> str:
        return "that of the environment"


UNSET = Unset()


def limit_of(env: FunctionalEnv, given: Any) -> int | None:
    """Return the limit of steps: as given, or else that of the environment."""
    limit = env.max_episode_steps if isinstance(given, Unset) else given
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise af.OptionError(
            f"max_episode_steps={limit!r} is not valid",
            remedy="Pass a whole number from 1 on, or None for no limit.",
        )
    return limit


def mode_of(given: Any) -> AutoresetMode:
    """Return an autoreset mode, given as such or by its name or value."""
    if isinstance(given, AutoresetMode):
        return given
    for mode in AutoresetMode:
        if str(given).upper().replace("-", "_") in (mode.name, mode.value.upper()):
            return mode
    raise af.OptionError(
        f"autoreset_mode={given!r} is not valid",
        remedy=f"Pass one of {', '.join(f'AutoresetMode.{mode.name}' for mode in AutoresetMode)}.",
    )
