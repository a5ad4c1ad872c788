"""Containers for dataclasses and attrs classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from arrayferry._errors import StructureError
from arrayferry._plugin.container import Container
from arrayferry._types import AnyTree
from arrayferry._utilities.text import type_name

from .state import with_state


class DataclassContainer(Container):
    """For dataclasses. Objects are rebuilt without calling a constructor. Subclasses handle other lists of fields."""

    def fields(self, cls: Any) -> Sequence[Any]:
        return dataclasses.fields(cls)

    def names(self, value: AnyTree) -> list[str]:
        """Return the names of the fields that are set."""
        return [field.name for field in self.fields(type(value)) if hasattr(value, field.name)]

    def children(self, value: AnyTree) -> Sequence[Any]:
        return [getattr(value, name) for name in self.names(value)]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = with_state(value)
        self.fill(new, value, children)
        return new

    def fill(self, new: Any, value: AnyTree, children: list[Any]) -> None:
        for name, child in zip(self.names(value), children, strict=True):
            object.__setattr__(new, name, child)
            if _is_elsewhere(value, name) or getattr(new, name) is not child:
                cls = type(value)
                raise StructureError(
                    f"a {type_name(cls)} cannot be rebuilt: reading its field {name!r} does not "
                    "return the value that was set",
                    remedy="Register a Container for this class.",
                )

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [f".{name}" for name in self.names(value)]


def _is_elsewhere(value: AnyTree, name: str) -> bool:
    """Return whether a field is found only by `__getattr__`, and not in the object or its class."""
    cls = type(value)
    return name not in getattr(value, "__dict__", ()) and not any(
        name in base.__dict__ for base in cls.__mro__
    )


class WithFields(Container):
    """For a class that has fields and is derived from a container type of Python, such as dict."""

    def __init__(self, items: Container, fields: DataclassContainer) -> None:
        self.items = items
        self.fields = fields

    def children(self, value: AnyTree) -> Sequence[Any]:
        items, fields = self._parts(value)
        return [*items, *(field for field, index in fields if index is None)]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        items, fields = self._parts(value)
        new = self.items.rebuild(value, children[: len(items)])
        others = iter(children[len(items) :])
        self.fields.fill(
            new, value, [next(others) if index is None else children[index] for _, index in fields]
        )
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        pairs = zip(self.fields.steps(value), self._parts(value)[1], strict=True)
        return [*self.items.steps(value), *(step for step, (_, index) in pairs if index is None)]

    def _parts(self, value: AnyTree) -> tuple[Sequence[Any], list[tuple[Any, int | None]]]:
        """Return the items, and a pair for each field: the field, and the index of the item that is the same object.

        The index is None if no item is the same object.
        """
        items = self.items.children(value)
        index_by_id = {id(item): index for index, item in enumerate(items)}
        fields = self.fields.children(value)
        return items, [(field, index_by_id.get(id(field))) for field in fields]


class AttrsContainer(DataclassContainer):
    def fields(self, cls: Any) -> Sequence[Any]:
        return tuple(cls.__attrs_attrs__)

    def fill(self, new: Any, value: AnyTree, children: list[Any]) -> None:
        super().fill(new, value, children)
        # with cache_hash=True, attrs caches the hash, and computes it again if the cached value is None
        if hasattr(value, _HASH):
            object.__setattr__(new, _HASH, None)


_HASH = "_attrs_cached_hash"


DATACLASS = DataclassContainer()
ATTRS = AttrsContainer()
