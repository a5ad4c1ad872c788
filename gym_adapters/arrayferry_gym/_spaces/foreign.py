"""Spaces of other packages and of batches, as spaces of one environment in Gymnasium's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arrayferry_gym._arrays import plain_name


def gymnasium_space(space: Any, example: Any = None) -> Space[Any]:
    """Return the space of Gymnasium that has the attributes of a space of another package, such as mjlab's or gymnax's.

    Args:
        space: a Box, Discrete, MultiDiscrete, Dict or Tuple of that package, or a space of Gymnasium.
        example: a value of it with `shape` and `dtype`, or a tree of them, None if there is none. If the shape or dtype
            of a Box differs, that of the value is used.

    Raises:
        TypeError: it has not the attributes of any.
    """
    if isinstance(space, Space):
        return space
    inner: Any = getattr(space, "spaces", space)
    if isinstance(inner, Mapping):
        given = dict.fromkeys(inner) if example is None else example
        return spaces.Dict({key: gymnasium_space(part, given[key]) for key, part in inner.items()})
    if isinstance(inner, (tuple, list)):
        parts = [None] * len(inner) if example is None else example
        return spaces.Tuple(map(gymnasium_space, inner, parts))
    counts = getattr(space, "num_categories", getattr(space, "nvec", None))
    if counts is not None:
        like = space if example is None else example
        return spaces.MultiDiscrete(np.asarray(counts), dtype=_dtype(like, np.int64))
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if not hasattr(space, "shape") or not hasattr(space, "dtype"):
        raise TypeError(f"{space!r:.80} is no Box, Discrete, MultiDiscrete, Dict or Tuple")
    return _box(space, space if example is None else example)


def _dtype(space: Any, default: Any = None) -> Any:
    """Return the dtype of a space of any package, as NumPy's."""
    dtype = getattr(space, "dtype", default)
    return np.dtype(plain_name(getattr(dtype, "__name__", dtype)))


def _box(space: Any, like: Any) -> spaces.Box:
    """Return a Box of the bounds of a space, with the shape and dtype of a value."""
    dtype = _dtype(like)
    shape = (like.shape,) if isinstance(like.shape, int) else tuple(like.shape)
    low, high = (
        np.asarray(getattr(space, name, bound), np.float64)
        for name, bound in (("low", -np.inf), ("high", np.inf))
    )
    low = low if low.shape in ((), shape) else low.min()
    high = high if high.shape in ((), shape) else high.max()
    if dtype.kind in "iub":
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        most = min(most, 2**63 - 1024)  # the largest float64 that int64 can represent
        low, high = np.clip(low, least, most), np.clip(high, least, most)
    with np.errstate(over="ignore"):  # values out of the range of float32 become inf
        bounds = [np.broadcast_to(bound, shape).astype(dtype) for bound in (low, high)]
    return spaces.Box(*bounds, dtype=dtype.type)  # type: ignore[call-overload,no-any-return]


def of_one(space: Space[Any], n: int) -> Space[Any] | None:
    """Return the space of one environment, given that of a batch of `n`; None if it is not one of a batch."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        parts = {key: of_one(part, n) for key, part in named}
        if None in parts.values():
            return None
        known: Any = parts if isinstance(space, spaces.Dict) else list(parts.values())
        return type(space)(known)
    if not space.shape or space.shape[0] != n:
        return None
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[0], space.high[0], space.shape[1:], space.dtype.type)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.shape[1:]) if len(space.shape) > 1 else spaces.Discrete(2)
    if isinstance(space, spaces.MultiDiscrete):
        first, start = space.nvec[0], space.start[0]
        if first.ndim:
            return spaces.MultiDiscrete(first, start=start)
        return spaces.Discrete(int(first), start=int(start))
    return None


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
