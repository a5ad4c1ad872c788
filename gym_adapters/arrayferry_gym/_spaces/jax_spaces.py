"""Spaces of packages for JAX, such as gymnax and JaxMARL, as Gymnasium's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces


def gymnasium_space(space: Any, example: Any = None) -> Space[Any]:
    """Return the space of Gymnasium that corresponds to one of a package for JAX.

    Args:
        space: a Box, Discrete, MultiDiscrete, Dict or Tuple of such a package, or a space of Gymnasium.
        example: a value of it with `shape` and `dtype`, or a tree of them, None if there is none. If the shape or dtype
            of a Box differs, that of the value is used.

    Raises:
        TypeError: there is no such space.
    """
    if isinstance(space, Space):
        return space
    inner: Any = getattr(space, "spaces", space)
    if isinstance(inner, Mapping):
        return spaces.Dict(
            {
                key: gymnasium_space(part, None if example is None else example[key])
                for key, part in inner.items()
            }
        )
    if isinstance(inner, (tuple, list)):
        parts = [None] * len(inner) if example is None else example
        return spaces.Tuple(map(gymnasium_space, inner, parts))
    if hasattr(space, "num_categories"):
        dtype = np.dtype(getattr(example, "dtype", space.dtype))
        return spaces.MultiDiscrete(np.asarray(space.num_categories), dtype=dtype)
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "low"):
        return _box(space, example)
    raise TypeError(f"{space!r:.80} is no Box, Discrete, MultiDiscrete, Dict or Tuple")


def _box(space: Any, example: Any) -> spaces.Box:
    like = space if example is None else example
    dtype = np.dtype(like.dtype)
    shape = (like.shape,) if isinstance(like.shape, int) else tuple(like.shape)
    low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
    low = low if low.shape in ((), shape) else low.min()
    high = high if high.shape in ((), shape) else high.max()
    if dtype.kind in "iub":
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        most = min(most, 2**63 - 1024)  # the largest float64 that int64 can represent
        low, high = np.clip(low, least, most), np.clip(high, least, most)
    with np.errstate(over="ignore"):  # values out of the range of float32 become inf
        bounds = [np.broadcast_to(bound, shape).astype(dtype) for bound in (low, high)]
    return spaces.Box(*bounds, dtype=dtype.type)  # type: ignore[call-overload,no-any-return]
