"""The structure of a value: its type, and the types of all values inside. Values of the same structure share a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arrayferry._tree.nodes import Branch
from arrayferry._types import AnyTree

MANY = "..."
"""Marks the structure of a container with any number of children, all of the same structure."""
MIN_MANY = 16
"""If a container has at least this many children, all of one structure, its code is a loop for any number of them."""
MAX_LEVELS = 30
"""The maximum number of levels of a structure with a plan. Python's parser limits the depth of the code."""

Reader = Callable[[Any], Iterable[Any]]

_BUILT_IN: dict[type, Reader] = {dict: dict.values, list: iter, tuple: iter}


class UnplannableError(Exception):
    """A value cannot have a plan, since it is too large or too deep, or contains the same container object twice."""


def reader_of(branch: Branch) -> Reader:
    """Return a function that returns the values inside a container of the class of `branch.value`."""
    return _BUILT_IN.get(type(branch.value), branch.container.children)


def structure_of(value: AnyTree, readers: Mapping[type, Reader]) -> Any:
    """Return the structure of a value.

    Args:
        value: anything.
        readers: for each type of container, a function that returns the values inside.

    Returns:
        The type of the value. For a container: a tuple of its type and the structures of its children. If the code for
        the container is a loop: a tuple of its type, the one structure of all children, and `MANY`.

    Raises:
        UnplannableError: the value has too many levels, or contains a container twice that is not a tuple without
            containers.
    """
    return _structure(value, readers, set(), MAX_LEVELS) if type(value) in readers else type(value)


def _structure(value: AnyTree, readers: Mapping[type, Reader], seen: set[int], levels: int) -> Any:
    cls = type(value)
    if not levels or (id(value) in seen and (cls is not tuple or _has_containers(value, readers))):
        raise UnplannableError
    seen.add(id(value))
    structures = [
        _structure(child, readers, seen, levels - 1) if type(child) in readers else type(child)
        for child in readers[cls](value)
    ]
    if len(structures) >= MIN_MANY and cls in _BUILT_IN:
        first_structure = structures[0]
        if structures.count(first_structure) == len(structures) and not _has_many(first_structure):
            return cls, first_structure, MANY
    return cls, *structures


def _has_containers(value: AnyTree, readers: Mapping[type, Reader]) -> bool:
    return any(type(child) in readers for child in value)


def _has_many(structure: Any) -> bool:
    return type(structure) is tuple and (
        structure[-1] is MANY or any(map(_has_many, structure[1:]))
    )
