"""Keys: two values have equal keys only if code that was made for one of them is right for the other.

Unlike with Python's own equality, 1, 1.0 and True differ, and so do 0.0 and -0.0, an object of a class and one of a
derived class, and objects whose attributes differ, even if they compare equal. Functions have equal keys if their code
and all that it closes over have.
"""

from __future__ import annotations

import re
import struct
import sys
from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from arrayferry._repr import short_repr

from .state import class_attribute

MAX_DEPTH = 50
SMALL = 4_096
"""The maximum size in bytes of a NumPy array that is part of a key. A larger array has a key that no other value has."""

_PLAIN = (bool, int, str, bytes, type(None), type(...), type(NotImplemented), CodeType)
_BY_IDENTITY = (type, BuiltinFunctionType, ModuleType)
_NUMBERS = (int, float, complex, str, bytes)
HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8  # flags of a class
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
POINTER = struct.calcsize("P")

Parts = Iterable[tuple[str, Any]]
"""The parts of a value with their labels, which are written as Python would write the way to a part."""


class Same:
    """The key of an object that equals only itself. It keeps the object alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _Structure:
    """The key of the structure of a tree. What it holds may be compared with anything, and that may fail.

    Equal ones may hold objects that are written in several ways.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, _Structure) and bool(self.value == other.value)
        except Exception:  # a number of NumPy and a tuple, say
            return False

    def __hash__(self) -> int:
        return hash(self.value)


class _Unlike:
    """The key of a value that may change at any time, or is too large. It equals only itself."""

    __slots__ = ()


def exact_key(value: Any) -> Hashable:
    """Return a key for everything that code made for a value relies on.

    A value that may change without notice, such as a writable array, or is too large, has a key that equals no other.
    """
    if type(value) is str:
        return str, value
    try:
        return Keys().of(value)
    except MemoryError:
        raise
    except Exception:  # an odd object
        return _Unlike()


def difference(one: Hashable, other: Hashable) -> str:
    """Return the first place where two keys differ, as Python would write it: `.size`, `['a'][0]`, or "" at the top."""
    for (label, mine), (its_label, its) in zip(_parts_of(one), _parts_of(other), strict=False):
        if label == its_label and mine != its:
            return str(label) + difference(mine, its)
    return ""


def _parts_of(key: Any) -> Any:
    """Return the parts of a key with their labels, () for a leaf."""
    parts = key[1] if isinstance(key, tuple) and len(key) == 2 else None
    whole = isinstance(parts, tuple) and all(
        type(part) is tuple and len(part) == 2 for part in parts
    )
    return parts if whole else ()


class Keys:
    """Makes the key of one value: a leaf, or `(type, ((label, key), ...))` for a value with parts.

    Override the methods below to leave something out, or to distinguish some objects in another way.

    Attributes:
        max_objects: the maximum number of objects to visit. A value that holds more gets a key that equals no other.
        attributes_of_all: whether the key of an object without its own `__eq__`, which equals only itself, changes
            with its attributes.

    Examples:
        >>> from arrayferry.adapting import Keys, difference
        >>> a, b = Keys().of({"size": [3, 4]}), Keys().of({"size": [3, 4.0]})
        >>> a == b, difference(a, b)
        (False, "['size'][1]")
    """

    max_objects: float = 10_000
    attributes_of_all = True

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[int, Any]] = {}

    def of(self, value: Any) -> Hashable:
        """Return the key of a value."""
        cls = type(value)
        if cls in _PLAIN:
            return cls, value
        if cls is float:
            return cls, value.hex()
        if cls is complex:
            return cls, value.real.hex(), value.imag.hex()
        if isinstance(value, Same):
            return value
        if issubclass(cls, _BY_IDENTITY):
            return Same(value)
        self._count += 1
        if len(self._open) > MAX_DEPTH or self._count > self.max_objects:
            return _Unlike()
        if id(value) in self._open:
            return "inside", self._open[id(value)]
        self._open[id(value)] = len(self._open)
        try:
            return self.compound(value, cls)
        finally:
            del self._open[id(value)]

    def compound(self, value: Any, cls: type) -> Hashable:
        """Return the key of a value that may have parts."""
        function = cls is FunctionType
        if not function and _is_array(cls) and not issubclass(cls, _NUMBERS):  # as NumPy's text is
            return cls, self.array(value)
        if function or not compares(cls):
            inner = _without_jax(value, cls)
            if inner is not value:
                return inner if type(inner) is Same else (cls, (("", self.of(inner)),))
            known = self._known.get(id(value))
            if known is not None:  # many functions refer to each other
                return "again", known[0]
            self._known[id(value)] = len(self._known), value
        parts = self.parts(value, cls)
        if parts is None:
            return cls, self.opaque(value)
        keys = [(label, self.part(label, part)) for label, part in parts]
        return cls, frozenset(keys) if issubclass(cls, (set, frozenset)) else tuple(keys)

    def part(self, label: str, part: Any) -> Hashable:
        """Return the key of a part."""
        return self.of(part)

    def ignored(self, cls: type) -> Container[str]:
        """Return the names of attributes that are left out."""
        return ()

    def array(self, x: Any) -> Hashable:
        """Return the key of an array, of any library."""
        if isinstance(x, _class_of("numpy", "ndarray")):
            if x.dtype.kind == "O":
                return "O", x.shape, tuple(map(self.of, x.flat))
            if not x.dtype.hasobject and x.nbytes <= SMALL:
                return x.dtype.str, x.shape, x.tobytes()
            return _Unlike()
        if isinstance(x, _class_of("jax", "Array")):
            return Same(x)  # it never changes
        return _Unlike()

    def opaque(self, value: Any) -> Hashable:
        """Return the key of an object without parts."""
        cls: Any = type(value)
        if not compares(cls) or cls.__hash__ is object.__hash__:
            return Same(value)
        if isinstance(value, _class_of("numpy", "generic")):
            return str(value.dtype), value.tobytes()
        hash(value)
        structures = _class_of("jax.tree_util", "PyTreeDef"), _class_of("optree", "PyTreeSpec")
        if isinstance(value, structures):
            return _Structure(value)
        return value, _ADDRESS.sub("", repr(value))  # Decimal("1.0") equals Decimal("1")

    def parts(self, value: Any, cls: type) -> Parts | None:
        """Return the parts of a value, None if it hides them, as objects of C code do."""
        if issubclass(cls, PurePath):  # its attributes are caches
            return [("", str(value))]
        content = _content(value, cls)
        if content is None and not (compares(cls) or self.attributes_of_all):
            return None
        ignored = self.ignored(cls)
        own = [(f".{name}", held) for name, held in attributes(value) if name not in ignored]
        if content is not None:
            return [*content, *own]
        if not compares(cls):  # it may hold more than can be seen
            return [("", Same(value)), *own] if own else None
        return own if own or not any(map(_is_of_c, cls.__mro__[:-1])) else None


def compares(cls: Any) -> bool:
    """Return whether objects of a class are compared by anything other than identity."""
    return cls.__eq__ is not object.__eq__


def _content(value: Any, cls: Any) -> Parts | None:
    """Return the parts of a value of one of Python's own types, without its attributes; None for other values."""
    if issubclass(cls, dict):
        content = []
        if hasattr(cls, "default_factory"):
            content.append((".default_factory", value.default_factory))
        for key, held in dict.items(value):
            label = f"[{short_repr(key)}]"
            content += [(f"key {label}", key), (label, held)]
        return content
    if cls is MappingProxyType:
        return [("", value.copy())]
    for base in (list, tuple, deque):
        if issubclass(cls, base):
            names = dict(enumerate(getattr(cls, "_fields", ())))
            items = enumerate(base.__iter__(value))
            content = [(f".{names[i]}" if i in names else f"[{i}]", held) for i, held in items]
            if base is deque:
                content.append((".maxlen", value.maxlen))
            elif hasattr(cls, "n_sequence_fields"):  # it has fields that are not elements
                content.append(("", value.__reduce__()[1][1]))
            return content
    if issubclass(cls, (set, frozenset)):
        return [("{}", held) for held in value]
    if issubclass(cls, _NUMBERS):
        return [("", next(base for base in cls.__mro__ if base in _NUMBERS)(value))]
    if cls is FunctionType:
        return _of_function(value)
    if cls is MethodType:
        return [("", value.__func__), ("", value.__self__)]
    if issubclass(cls, partial):
        return [("", value.func), (".args", value.args), (".keywords", value.keywords)]
    if cls is slice:
        return [(".start", value.start), (".stop", value.stop), (".step", value.step)]
    return None


def _of_function(function: Any) -> Parts:
    """Return the parts of a function without its attributes: its code, and the values that it holds."""
    parts = [(" code", function.__code__), (" module", Same(function.__globals__))]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((f" {name}", cell.cell_contents))
        except ValueError:  # still empty
            pass
    parts.append((" defaults", function.__defaults__))
    parts.append((" keyword defaults", function.__kwdefaults__))
    return parts


def _without_jax(value: Any, cls: type) -> Any:
    """Return the function that one of JAX wraps, its identity if it wraps none, or any other value unchanged."""
    function = cls is FunctionType
    if not _is_of_jax(value if function else cls):
        return value
    inner = None if function else getattr(value, "__wrapped__", None)  # of jax.jit, for instance
    return Same(value) if inner is None or _is_of_jax(inner) else inner


def _is_of_jax(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] in ("jax", "jaxlib")


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of the object itself, in a fixed order, without running code of its class."""
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        for name in sorted(held, key=str):
            if not isinstance(class_attribute(type(value), name), cached_property):
                yield name, held[name]
    for base in type(value).__mro__[:-1]:
        if _is_of_c(base):
            continue
        for name, slot in base.__dict__.items():
            if type(slot) is MemberDescriptorType:
                try:
                    yield name, slot.__get__(value)
                except AttributeError:  # unset
                    continue


def _is_of_c(base: type) -> bool:
    """Return whether a class is not written in Python, so that objects hold more than their attributes.

    A class of C may be a heap type, as those of Python are. Then it is immutable, as in the standard library since
    Python 3.12, or its objects have room for more than `__dict__`, `__weakref__` and slots, as with nanobind.
    """
    if not base.__flags__ & HEAP_TYPE or base.__flags__ & IMMUTABLE_TYPE:
        return True
    own = base.__dict__
    room = base.__basicsize__ - (base.__base__ or object).__basicsize__
    room -= POINTER * (("__dict__" in own) + ("__weakref__" in own))
    return room > 0 and room > POINTER * sum(type(x) is MemberDescriptorType for x in own.values())


_PROTOCOLS = ("__array__", "__dlpack__", "__array_namespace__", "__array_interface__")


def _is_array(cls: type) -> bool:
    return all(hasattr(cls, name) for name in ("shape", "dtype", "__len__")) and any(
        hasattr(cls, name) for name in _PROTOCOLS
    )


def _class_of(module: str, name: str) -> Any:
    """Return a class of a module for `isinstance`, an empty tuple if the module was not imported."""
    return getattr(sys.modules.get(module), name, ())
