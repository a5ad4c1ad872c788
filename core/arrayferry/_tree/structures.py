"""Chooses the container for a class: a structure of Python, a class with fields, or another mapping."""

from __future__ import annotations

from collections.abc import Mapping

from arrayferry._plugin.container import Container

from .fields import ATTRS, DATACLASS, DataclassContainer, WithFields
from .mappings import MAPPING, MAPPINGS, MAPPINGS_BY_BASE
from .sequences import SEQUENCES, SEQUENCES_BY_BASE, STRUCT_SEQUENCE
from .state import class_attribute

EXACT = MAPPINGS | SEQUENCES
"""The containers for Python's own types, by exact type."""
_BY_BASE = MAPPINGS_BY_BASE + SEQUENCES_BY_BASE


def container_for(cls: type) -> Container | None:
    """Return the container for a class, or None if the class is not a structure.

    The class may be derived from a structure of Python, have fields, or be another mapping.
    """
    if issubclass(cls, tuple) and class_attribute(cls, "n_sequence_fields") is not None:
        return STRUCT_SEQUENCE
    field_container = _fields_of(cls)
    for base, container in _BY_BASE:
        if issubclass(cls, base):
            return container if field_container is None else WithFields(container, field_container)
    if field_container is not None:
        return field_container
    return MAPPING if issubclass(cls, Mapping) else None


def _fields_of(cls: type) -> DataclassContainer | None:
    if isinstance(class_attribute(cls, "__dataclass_fields__"), dict):
        return DATACLASS
    if isinstance(class_attribute(cls, "__attrs_attrs__"), tuple):
        return ATTRS
    return None
