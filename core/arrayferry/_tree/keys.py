"""`exact_key`: a key for a value that two values share only if they are the same in type and content."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Iterator
from functools import cached_property, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from .state import class_attribute

__all__ = ["attributes", "exact_key"]

MAX_DEPTH = 50
MAX_OBJECTS = 10_000
"""Objects that are looked at for one key at most. A value that is larger is like no other."""
SMALL = 4_096
"""Bytes of a NumPy array that are part of a key. A larger array is like no other."""

_PLAIN = (bool, int, str, bytes, type(None), type(...), type(NotImplemented))
_BY_IDENTITY = (type, FunctionType, BuiltinFunctionType, ModuleType)


class _Same:
    """Equal only for the very same object, which it keeps alive."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class _Unlike:
    """Equal to itself alone."""

    __slots__ = ()


def exact_key(value: Any) -> Hashable:
    """Return a key for what code that was made for a value relies on.

    Unlike Python's own equality, 1, 1.0 and True differ, and so do 0.0 and -0.0, classes that are derived from
    others, and objects whose attributes differ, however they are compared. What may change without notice, such as
    an array that can be written to, and what is too large, has a key that no other value has.
    """
    if type(value) is str:
        return str, value
    try:
        return _Keys().of(value, 0)
    except MemoryError:
        raise
    except Exception:  # an odd object
        return _Unlike()


class _Keys:
    """Makes one key."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[int, int] = {}

    def of(self, value: Any, depth: int) -> Hashable:
        cls = type(value)
        if cls in _PLAIN:
            return cls, value
        if cls is float:
            return cls, value.hex()
        if cls is complex:
            return cls, value.real.hex(), value.imag.hex()
        if issubclass(cls, _BY_IDENTITY):
            return _Same(value)
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_OBJECTS:
            return _Unlike()
        if id(value) in self._open:
            return "inside", self._open[id(value)]
        self._open[id(value)] = len(self._open)
        try:
            return self._compound(value, cls, depth + 1)
        finally:
            del self._open[id(value)]

    def _compound(self, value: Any, cls: type, depth: int) -> Hashable:
        of = self.of
        state = tuple((name, of(held, depth)) for name, held in attributes(value))
        content: Hashable = None
        if issubclass(cls, dict):
            factory = of(getattr(value, "default_factory", None), depth)
            content = factory, tuple((of(k, depth), of(v, depth)) for k, v in dict.items(value))
        elif cls is MappingProxyType:
            content = of(value.copy(), depth)
        elif issubclass(cls, (list, tuple)):
            items = list.__iter__(value) if issubclass(cls, list) else tuple.__iter__(value)
            content = tuple(of(each, depth) for each in items)
            if hasattr(cls, "n_sequence_fields"):  # it has fields that are no elements
                content = content, of(value.__reduce__()[1][1], depth)
        elif issubclass(cls, deque):
            content = value.maxlen, tuple(of(each, depth) for each in deque.__iter__(value))
        elif issubclass(cls, (set, frozenset)):
            content = frozenset(of(each, depth) for each in value)
        elif issubclass(cls, (int, float, complex, str, bytes)):
            base = next(b for b in cls.__mro__ if b in (int, float, complex, str, bytes))
            content = of(base(value), depth)
        elif cls is partial:
            content = tuple(of(x, depth) for x in (value.func, value.args, value.keywords))
        elif cls is MethodType:
            content = of(value.__self__, depth), _Same(value.__func__)
        elif issubclass(cls, PurePath):
            return cls, str(value)  # its attributes are caches
        elif cls is slice:
            content = tuple(of(x, depth) for x in (value.start, value.stop, value.step))
        elif _is_array(value):
            content = _array_key(value)
            if content is None:  # it holds objects
                content = value.shape, tuple(of(each, depth) for each in value.flat)
        elif not state:
            content = _opaque_key(value)
        elif cls.__eq__ is object.__eq__:  # it may hold more than can be seen
            content = _Same(value)
        return cls, content, state


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object has of its own, in a fixed order, without running code of its class."""
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        for name in sorted(held, key=str):
            if not isinstance(class_attribute(type(value), name), cached_property):
                yield name, held[name]
    for base in type(value).__mro__:
        for name, slot in base.__dict__.items():
            if type(slot) is MemberDescriptorType and not _is_of_c(base):
                try:
                    yield name, slot.__get__(value)
                except AttributeError:  # unset
                    continue


def _is_of_c(base: type) -> bool:
    """Tell whether a class is not written in Python, so that its members are known in other ways."""
    return not base.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE


def _opaque_key(value: Any) -> Hashable:
    """Return a key for an object without attributes of its own."""
    cls: Any = type(value)
    if cls.__eq__ is object.__eq__ or cls.__hash__ is object.__hash__:
        return _Same(value)
    if isinstance(value, _class_of("numpy", "generic")):
        return str(value.dtype), value.tobytes()
    hash(value)
    return value, repr(value)  # Decimal("1.0") equals Decimal("1")


def _is_array(value: Any) -> bool:
    cls = type(value)
    return hasattr(cls, "shape") and hasattr(cls, "dtype") and hasattr(cls, "__len__")


def _array_key(value: Any) -> Hashable:
    if isinstance(value, _class_of("numpy", "ndarray")):
        dtype = value.dtype
        if dtype.kind == "O":
            return None
        if not dtype.hasobject and value.nbytes <= SMALL:
            return str(dtype), value.shape, value.tobytes()
        return _Unlike()
    if isinstance(value, _class_of("jax", "Array")):
        return _Same(value)  # it never changes
    return _Unlike()


def _class_of(module: str, name: str) -> Any:
    """Return a class of a module, if that was imported, and otherwise one that no object is of."""
    return getattr(sys.modules.get(module), name, ())
