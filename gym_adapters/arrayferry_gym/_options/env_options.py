"""Options that all environments check in the same way. They mean the same as in Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af
from arrayferry.typing import AnyArray


def reset_mask_of(mask: AnyArray, count: int) -> Any:
    """Return the option `reset_mask` as a NumPy array of dtype bool and shape (count,), or None if `mask` is None.

    A mask that is false everywhere resets no environment.

    Args:
        mask: a list, or an array of any library, with True for each environment to reset.
        count: the number of environments.

    Raises:
        arrayferry.OptionError: `mask` is not a mask of `count` booleans.
    """
    if mask is None:
        return None
    array = np.asarray(mask) if isinstance(mask, (list, tuple)) else mask
    array = af.convert(array, "numpy") if hasattr(array, "dtype") else array
    if getattr(array, "dtype", None) != np.bool_ or array.shape != (count,):
        raise af.OptionError(
            f"options['reset_mask'] must be a mask of environments, not {mask!r:.80}",
            remedy=f"Pass {count} booleans, such as terminations | truncations.",
        )
    return array


def forwarded_mask(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return options for an inner environment. A `reset_mask` that is a list becomes an array."""
    mask = options.get("reset_mask") if isinstance(options, dict) else None
    if options is None or not isinstance(mask, (list, tuple)):
        return options
    return {**options, "reset_mask": np.asarray(mask)}
