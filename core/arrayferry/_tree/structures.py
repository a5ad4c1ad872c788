"""Chooses the container for a value: of Python's own structures, classes with fields, and JAX's pytrees."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from arrayferry._plugin.container import Container

from .fields import ATTRS, DATACLASS, PYTREE, DataclassContainer, WithFields
from .mappings import MAPPING, MAPPINGS, MAPPINGS_BY_BASE
from .sequences import SEQUENCES, SEQUENCES_BY_BASE, STRUCT_SEQUENCE
from .state import class_attribute

_EXACT = MAPPINGS | SEQUENCES
_BY_BASE = MAPPINGS_BY_BASE + SEQUENCES_BY_BASE


def container_for(value: Any) -> Container | None:
    """Find the container that handles a value, None if the value is not a structure.

    The order: the types of Python itself; types registered with JAX, if it is imported; classes
    derived from Python's; dataclasses and attrs classes; any other mapping.
    """
    cls = type(value)
    exact = _EXACT.get(cls)
    if exact is not None:
        return exact
    if issubclass(cls, tuple):
        if class_attribute(cls, "n_sequence_fields") is not None:
            return STRUCT_SEQUENCE
    elif _is_pytree(value):
        return PYTREE
    fields = _fields_of(cls)
    for base, container in _BY_BASE:
        if issubclass(cls, base):
            return container if fields is None else WithFields(container, fields)
    if fields is not None:
        return fields
    return MAPPING if issubclass(cls, Mapping) else None


def _fields_of(cls: type) -> DataclassContainer | None:
    if isinstance(class_attribute(cls, "__dataclass_fields__"), dict):
        return DATACLASS
    if isinstance(class_attribute(cls, "__attrs_attrs__"), tuple):
        return ATTRS
    return None


def pytrees_are_known() -> bool:
    """Return whether JAX has been imported, so that it can be asked for its pytrees."""
    return hasattr(getattr(sys.modules.get("jax"), "tree_util", None), "all_leaves")


def _is_pytree(value: Any) -> bool:
    if pytrees_are_known():
        with suppress(Exception):
            return not sys.modules["jax"].tree_util.all_leaves([value])
    return False
