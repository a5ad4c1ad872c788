"""Spaces of other packages as spaces in Gymnasium's classes, and with other bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arrayferry_gym._arrays import plain_name


def gymnasium_space(space: Any) -> Space[Any]:
    """Return the space of Gymnasium that has the attributes of a space of another class, such as mjlab's.

    Raises:
        TypeError: it has not the attributes of any.
    """
    if isinstance(space, Space):
        return space
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        return spaces.Dict({key: gymnasium_space(part) for key, part in inner.items()})
    if isinstance(inner, (list, tuple)):
        return spaces.Tuple([gymnasium_space(part) for part in inner])
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if hasattr(space, "nvec"):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if not hasattr(space, "shape") or not hasattr(space, "dtype"):
        raise TypeError(f"{space!r:.80} is no space: it has no shape and dtype")
    dtype: Any = np.dtype(plain_name(getattr(space.dtype, "__name__", space.dtype)))
    low, high = (
        np.broadcast_to(np.asarray(getattr(space, name, bound), dtype), space.shape)
        for name, bound in (("low", -np.inf), ("high", np.inf))
    )
    return spaces.Box(low, high, tuple(space.shape), dtype)


def with_bounds(space: Space[Any], low: Any, high: Any) -> Space[Any]:
    """Return a space whose Boxes have other bounds."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: with_bounds(part, low, high) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([with_bounds(part, low, high) for part in space.spaces])
    if not isinstance(space, spaces.Box):
        return space
    dtype: Any = space.dtype
    low, high = (np.broadcast_to(np.asarray(bound, dtype), space.shape) for bound in (low, high))
    box: Space[Any] = spaces.Box(low, high, space.shape, dtype)
    return box
