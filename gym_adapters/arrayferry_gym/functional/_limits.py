"""Options that several drivers share: the limit of steps, and when environments are reset."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

import arrayferry as af

from ._base import FunctionalEnv

__all__ = ["UNSET", "Unset", "check_count", "limit_of", "mode_of"]


class Unset:
    """The default of an option whose None means something."""

    def __repr__(self) -> str:
        return "that of the environment"


UNSET = Unset()


def limit_of(env: FunctionalEnv, given: Any) -> int | None:
    """Return the limit of steps: as given, or else that of the environment."""
    limit = env.max_episode_steps if isinstance(given, Unset) else given
    if limit is not None:
        check_count("max_episode_steps", limit, "a whole number from 1 on, or None for no limit")
    return limit


def check_count(name: str, number: Any, wanted: str = "a whole number from 1 on") -> None:
    """Check that an option is a whole number from 1 on.

    Raises:
        arrayferry.OptionError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise af.OptionError(f"{name}={number!r:.80} is not valid", remedy=f"Pass {wanted}.")


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
