"""Finds the NumPy arrays in an environment's attributes. Results must not share memory with these arrays."""

from __future__ import annotations

import types
from collections import deque
from typing import Any

import numpy as np

from arrayferry.typing import AnyTree

_PLAIN = (str, bytes, bool, int, float, type(None), type, types.FunctionType, types.ModuleType)
"""Types of objects that are not searched for arrays."""


def held_arrays(env: Any) -> frozenset[int]:
    """Return the ids of the NumPy arrays in the attributes of an environment and of its classes."""
    ids: set[int] = set()
    seen: dict[int, Any] = {}
    todo = [env, *(value for base in type(env).__mro__[:-1] for value in vars(base).values())]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen[id(value)] = value
        if isinstance(value, np.ndarray):
            ids.add(id(value))
            todo += [value.base, *(value.flat if value.dtype.hasobject else ())]
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            todo += value
        else:
            todo += _attributes(value)
    return frozenset(ids)


def _attributes(value: AnyTree) -> list[Any]:
    """Return the attributes of an object, including values of cached properties."""
    slots = [
        slot.__get__(value)
        for base in type(value).__mro__
        for name, slot in vars(base).items()
        if type(slot) is types.MemberDescriptorType and hasattr(value, name)
    ]
    return [*getattr(value, "__dict__", {}).values(), *slots]
