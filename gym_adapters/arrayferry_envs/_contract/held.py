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
    seen_objects: dict[int, Any] = {}
    objects_left = [env, *(value for cls in type(env).__mro__[:-1] for value in vars(cls).values())]
    while objects_left:
        value = objects_left.pop()
        if id(value) in seen_objects or isinstance(value, _PLAIN):
            continue
        seen_objects[id(value)] = value
        if isinstance(value, np.ndarray):
            ids.add(id(value))
            objects_left += [value.base, *(value.flat if value.dtype.hasobject else ())]
        elif isinstance(value, dict):
            objects_left += value.values()
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            objects_left += value
        else:
            objects_left += _attributes(value)
    return frozenset(ids)


def _attributes(value: AnyTree) -> list[Any]:
    """Return the attributes of an object, including values of cached properties."""
    slot_values = [
        descriptor.__get__(value)
        for cls in type(value).__mro__
        for name, descriptor in vars(cls).items()
        if type(descriptor) is types.MemberDescriptorType and hasattr(value, name)
    ]
    return [*getattr(value, "__dict__", {}).values(), *slot_values]
