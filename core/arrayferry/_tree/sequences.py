"""Lists, tuples, deques, and NumPy's arrays of objects."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Sequence
from typing import Any

from arrayferry._plugin.container import Container
from arrayferry._types import AnyTree

from .state import by_new, copy_state, has_attributes, with_state


class ListContainer(Container):
    transparent = True

    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(value)

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return children


class ListSubclassContainer(ListContainer):
    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(list.__iter__(value))

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = by_new(value)
        list.extend(new, children)
        copy_state(new, value)
        return new


class UserListContainer(ListContainer):
    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(value.data)

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = with_state(value)
        new.data = children
        return new


class TupleContainer(ListContainer):
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return tuple(children)


class TupleSubclassContainer(TupleContainer):
    """For classes derived from tuple, such as named tuples. No constructor is called."""

    transparent = False

    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(tuple.__iter__(value))

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        cls = type(value)
        new = tuple.__new__(cls, children)
        if has_attributes(cls):
            copy_state(new, value)
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        fields = getattr(type(value), "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(value):
            return [f".{field}" for field in fields]
        return super().steps(value)


class StructSequenceContainer(TupleSubclassContainer):
    """For named tuples that are implemented in C, such as the result of `torch.max`."""

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return type(value)(children, value.__reduce__()[1][1])


class DequeContainer(ListContainer):
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = by_new(value)
        deque.__init__(new, children, value.maxlen)
        copy_state(new, value)
        return new


class ObjectArrayContainer(Container):
    """For NumPy arrays of Python objects. Each element is a child."""

    transparent = True

    def children(self, value: AnyTree) -> Sequence[Any]:
        import numpy

        return list(value.view(numpy.ndarray).flat)

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        import numpy

        new_array = numpy.empty_like(value, order="C")
        flat_view = new_array.view(numpy.ndarray).reshape(-1)
        for index, child in enumerate(children):
            flat_view[index] = child
        return new_array

    def steps(self, value: AnyTree) -> Sequence[str]:
        import numpy

        return [str(list(index)) if index else "[()]" for index in numpy.ndindex(value.shape)]

    def static(self, value: AnyTree) -> Any:
        return value.shape, getattr(value, "__dict__", None)


OBJECT_ARRAY = ObjectArrayContainer()
STRUCT_SEQUENCE = StructSequenceContainer()

_DEQUE = DequeContainer()

SEQUENCES: dict[type, Container] = {
    list: ListContainer(),
    tuple: TupleContainer(),
    deque: _DEQUE,
}
"""Containers by the exact type of a sequence."""

SEQUENCES_BY_BASE: tuple[tuple[type, Container], ...] = (
    (list, ListSubclassContainer()),
    (tuple, TupleSubclassContainer()),
    (deque, _DEQUE),
    (UserList, UserListContainer()),
)
"""Containers for subclasses of these types. The first match is used."""
