"""Keys of what code is compiled for, whatever its size. Values with equal keys share compiled code."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any

import numpy as np
from gymnasium import Space

from arrayferry.adapting import exact_key

_OF_SPACE = ("_np_random", "low_repr", "high_repr")
"""What a space changes when it is sampled or printed."""


class Key:
    """A key whose hash is computed once.

    Args:
        value: what it is compared by.
    """

    __slots__ = ("__weakref__", "_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value: Any = value
        self._hash = hash(value)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and bool(self.value == other.value))

    def __hash__(self) -> int:
        return self._hash


class HasKey:
    """An object that has a key. The key of anything that holds the object contains it."""

    def _immutable_key(self) -> Key:
        raise NotImplementedError


def identity(value: Any) -> Hashable:
    """Return the key of a value: its type and contents, whatever the size of its arrays."""
    return exact_key(value, parts_of)


def parts_of(value: Any) -> Hashable | None:
    """Return the parts of a value that are compared, or its key; None to compare it as `exact_key` does by itself."""
    if isinstance(value, HasKey):
        return value._immutable_key()
    if isinstance(value, Space):
        return ({name: part for name, part in vars(value).items() if name not in _OF_SPACE},)
    if isinstance(value, np.ndarray) and holds_numbers(value):
        return value.dtype, value.shape, hashlib.blake2b(value.tobytes(), digest_size=32).digest()
    return None


def holds_numbers(x: np.ndarray[Any, Any]) -> bool:
    """Tell whether an array is nothing but numbers: it has no mask, and holds no objects."""
    return not isinstance(x, np.ma.MaskedArray) and not x.dtype.hasobject
