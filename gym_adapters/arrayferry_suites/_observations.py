"""Observations of environments, as their spaces have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


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
