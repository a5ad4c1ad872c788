"""Options that several drivers share: the limit of steps, and when environments are reset."""

from __future__ import annotations

from operator import index
from typing import Any

from gymnasium.vector import AutoresetMode

import arrayferry as af

from ._base import FunctionalEnv

__all__ = ["UNSET", "Unset", "count_of", "limit_of", "mode_of"]


class Unset:
    """The default of an option whose None means something."""

    def __repr__(self) -> str:
        return "that of the environment"


UNSET = Unset()


def limit_of(env: FunctionalEnv, given: Any) -> int | None:
    """Return the limit of steps: as given, or else that of the environment."""
    limit = env.max_episode_steps if isinstance(given, Unset) else given
    if limit is not None:
        limit = count_of(
            "max_episode_steps", limit, "a whole number from 1 on, or None for no limit"
        )
    return limit


def count_of(name: str, number: Any, wanted: str = "a whole number from 1 on") -> int:
    """Return an option that is a whole number from 1 on, also one of NumPy, or a 0-d array of any library.

    Raises:
        arrayferry.OptionError: it is not.
    """
    try:
        count = (
            -1
            if str(getattr(number, "dtype", type(number).__name__))[-4:] == "bool"
            else index(number)
        )
    except Exception:  # of any library
        count = -1
    if count < 1:
        traced = "Tracer" in type(number).__name__
        why = ": it is traced, but shapes are fixed in traced functions" if traced else ""
        raise af.OptionError(f"{name}={number!r:.80} is not valid{why}", remedy=f"Pass {wanted}.")
    return count


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
