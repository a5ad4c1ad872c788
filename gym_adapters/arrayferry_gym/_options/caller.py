"""Where a user called this package, for warnings."""

from __future__ import annotations

import sys
from typing import Any


def caller_level() -> int:
    """Return the `stacklevel` of the first caller outside this package, Gymnasium, PettingZoo and JAX."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("arrayferry_gym", "gymnasium", "pettingzoo", "supersuit", "jax._src", "contextlib")
    ):
        frame, level = frame.f_back, level + 1
    return level
