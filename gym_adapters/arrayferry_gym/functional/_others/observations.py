"""Observations of environments, as their spaces have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arrayferry_gym.functional._contract.params import field_names


def as_builtin(value: Any) -> Any:
    """Return an observation as dicts, tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(key): as_builtin(part) for key, part in value.items()}
    names = field_names(value)
    if names:
        return {name: as_builtin(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return tuple(map(as_builtin, value))
    return value
