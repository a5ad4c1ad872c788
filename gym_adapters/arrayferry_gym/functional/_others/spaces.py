"""Spaces of environments, from declared shapes and dtypes or from values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces


def as_builtin(value: Any) -> Any:
    """Return an observation as dicts, tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(key): as_builtin(part) for key, part in value.items()}
    if hasattr(value, "_fields"):
        return {name: as_builtin(getattr(value, name)) for name in value._fields}
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: as_builtin(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return tuple(map(as_builtin, value))
    return value


def space_of(example: Any, low: Any = -np.inf, high: Any = np.inf) -> Space[Any]:
    """Return the space of values like this one.

    Args:
        example: a tree of arrays, or of their shapes and dtypes, as `as_builtin` returns it.
        low: the lowest numbers of an array, as far as its dtype has them.
        high: the highest.
    """
    if isinstance(example, dict):
        return spaces.Dict({key: space_of(part) for key, part in example.items()})
    if isinstance(example, tuple):
        return spaces.Tuple(map(space_of, example))
    shape, dtype = tuple(example.shape), np.dtype(example.dtype)
    if dtype.kind == "b":
        return spaces.MultiBinary(shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        # float64 cannot represent the bounds of int64
        low = limits.min if np.all(np.asarray(low) <= float(limits.min)) else low
        high = limits.max if np.all(np.asarray(high) >= float(limits.max)) else high
    bounds = [np.broadcast_to(np.asarray(bound, dtype), shape) for bound in (low, high)]
    return spaces.Box(*bounds, dtype=dtype.type)  # type: ignore[call-overload,no-any-return]
