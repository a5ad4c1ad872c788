"""Functions that return Gymnasium spaces for spaces of other packages, and for values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree


def gymnasium_space(space: Any, example: AnyTree = None) -> Space[Any]:
    """Return the Gymnasium space for a space of another class, such as gymnax's or mjlab's.

    Args:
        space: a space, or a dict, list or tuple of spaces.
        example: None, or a value of the space with `shape` and `dtype`, or a tree of such values. The shapes of the
            values replace the shapes of Boxes, and their dtypes the dtypes of Boxes and MultiDiscretes.

    Raises:
        TypeError: the space lacks attributes that its Gymnasium space needs, such as `shape`, `dtype` or `low`.
    """
    if isinstance(space, Space):
        return space
    inner: Any = getattr(space, "spaces", space)
    if isinstance(inner, Mapping):
        parts = dict.fromkeys(inner) if example is None else example
        return spaces.Dict({key: gymnasium_space(part, parts[key]) for key, part in inner.items()})
    if isinstance(inner, (tuple, list)):
        parts = [None] * len(inner) if example is None else example
        return spaces.Tuple(map(gymnasium_space, inner, parts))
    counts = getattr(space, "num_categories", getattr(space, "nvec", None))
    if counts is not None:
        dtype = getattr(example, "dtype", getattr(space, "dtype", np.int64))
        return spaces.MultiDiscrete(np.asarray(counts), dtype=_numpy_dtype(dtype))
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    like = space if example is None else example
    if not hasattr(like, "shape") or not hasattr(like, "dtype"):
        raise TypeError(
            f"{space!r:.80} is not a space, since it has no shape and dtype. Pass a Gymnasium space"
        )
    dtype = _numpy_dtype(like.dtype)
    if dtype.kind != "f" and not hasattr(space, "low"):
        raise TypeError(
            f"{space!r:.80} is not a Box, Discrete, MultiDiscrete, Dict or Tuple. Pass a Gymnasium space"
        )
    shape = (like.shape,) if isinstance(like.shape, int) else tuple(like.shape)
    low = np.asarray(getattr(space, "low", -np.inf))
    high = np.asarray(getattr(space, "high", np.inf))
    low = low if low.shape in ((), shape) else low.min()
    high = high if high.shape in ((), shape) else high.max()
    return box(shape, dtype, low, high)


def _numpy_dtype(dtype: Any) -> Any:
    """Return the NumPy dtype for a dtype of any library, or for a scalar type."""
    return np.dtype(dtype_name(getattr(dtype, "__name__", dtype)))


def space_of(example: AnyTree, low: AnyArray = -np.inf, high: AnyArray = np.inf) -> Space[Any]:
    """Return a space for values with the structure, shapes and dtypes of an example.

    Args:
        example: an array, an object with `shape` and `dtype`, or a dict or tuple of these.
        low: the lower bound of a Box. For an integer dtype, it is clipped to the range of the dtype. Boxes inside a dict
            or tuple have no bounds.
        high: the upper bound of a Box, as `low`.
    """
    if isinstance(example, dict):
        return spaces.Dict({key: space_of(part) for key, part in example.items()})
    if isinstance(example, tuple):
        return spaces.Tuple(map(space_of, example))
    if np.dtype(example.dtype).kind == "b":
        return spaces.MultiBinary(tuple(example.shape))
    return box(tuple(example.shape), np.dtype(example.dtype), low, high)


def box(shape: tuple[int, ...], dtype: Any, low: AnyArray, high: AnyArray) -> spaces.Box:
    """Return a Box. Bounds for an integer dtype are clipped to its range."""
    bounds = np.asarray(low), np.asarray(high)
    if dtype.kind in "iub":
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        # clipping in float64 would round the limits of int64, so Python numbers are clipped
        bounds = tuple(np.clip(bound.astype(object), least, most) for bound in bounds)
    # NumPy would warn if bounds of float64 become inf or 0 in float32
    with np.errstate(over="ignore", under="ignore"):
        low, high = (np.broadcast_to(np.asarray(bound).astype(dtype), shape) for bound in bounds)
    return spaces.Box(low, high, dtype=dtype.type)


def with_bounds(space: Space[Any], low: AnyArray, high: AnyArray) -> Space[Any]:
    """Return a space in which all Boxes have the bounds `low` and `high`."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: with_bounds(part, low, high) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([with_bounds(part, low, high) for part in space.spaces])
    if not isinstance(space, spaces.Box):
        return space
    low, high = (np.broadcast_to(np.asarray(x, space.dtype), space.shape) for x in (low, high))
    return spaces.Box(low, high, space.shape, space.dtype)
