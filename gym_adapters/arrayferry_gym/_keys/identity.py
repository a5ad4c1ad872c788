"""Keys of values. Values with equal keys share compiled code.

The arrays that functions hold are found here too: compiled code would not see them change.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import math
import numbers
import operator
import os
import sys
import types
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from gymnasium import Space

import arrayferry as af
from arrayferry.adapting import Keys, Same, attributes, compares

from .code_names import ANY, ANY_GLOBAL, names_in, names_of, names_with_methods

__all__ = [
    "MODULE",
    "EnvironmentKeys",
    "HoldsArrayError",
    "Immutable",
    "KeepsKey",
    "Key",
    "code_identity",
    "digest_of",
    "held_arrays",
    "identity",
    "is_array",
]


class Immutable:
    """An object whose attributes do not change once it is made.

    Its key is made from its contents, including its arrays where code refers to it, and objects with the same key are
    equal.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or identity(self) == identity(other)

    def __hash__(self) -> int:
        return hash(identity(self))


class KeepsKey(Immutable):
    """An immutable object that keeps its key, unless a part of it, such as a list or an array, can be changed."""


class _Kept:
    """A key, and what it was made of: some code gets round what refuses changes.

    Args:
        key: the key of an object.
        objects: the immutable objects in it, itself first.

    Attributes:
        key: as given.
        inner: the attributes of the objects inside. Those of itself are not kept, since a copy has others.
        contents: for each object, the attributes of which the key was made.
    """

    def __init__(self, key: Hashable, objects: list[Any]) -> None:
        self.key = key
        self.inner = [each.__dict__ for each in objects[1:]]
        self.contents = [
            {name: part for name, part in each.__dict__.items() if name != _KEPT}
            for each in objects
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a copy of all makes its own


_KEPT = "_kept_key"
_CONSTANTS = (str, bytes, bool, int, float, complex, type(None))


class Key(Same):
    """A key whose hash is computed once. As a part of a value, it is its own key.

    Args:
        value: what it is compared by.
    """

    __slots__ = ("_hash",)

    def __init__(self, value: Hashable) -> None:
        super().__init__(value)
        self._hash = hash(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return self._hash


class HoldsArrayError(Exception):
    """An array was found where code that is compiled once would not see it change.

    Attributes:
        labels: the path to it, from the innermost label to the outermost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []


def identity(value: Any, *, code: bool = False) -> Hashable:
    """Return the key of a value.

    The key of a NumPy array is made from its contents. Other arrays, and objects without a comparison of their own,
    are compared by identity. Functions are the same if their code is, and all that it refers to.

    Args:
        value: anything.
        code: whether to look for arrays in functions and in the objects that their code uses: in what they close
            over, their defaults, and the attributes that the code names. Otherwise, objects are compared by identity.

    Raises:
        HoldsArrayError: an array was found there.
    """
    return (_CodeKeys() if code else EnvironmentKeys()).of(value)


def code_identity(function: Any, name: str, remedy: str) -> Hashable:
    """Return the key of a function, of its code and of all that it refers to.

    Args:
        function: the function, or an object that can be called.
        name: its name in the error.
        remedy: what to do instead.

    Raises:
        arrayferry.OptionError: it holds an array, which compiled code would not see change.
    """
    try:
        return identity(function, code=True)
    except HoldsArrayError as error:
        place = "".join(reversed(error.labels)).strip()
        raise af.OptionError(
            f"{name} holds an array, {place}, but it is compiled once and would not see the array change",
            remedy=remedy,
        ) from None


def is_array(value: Any) -> bool:
    """Tell whether a value is an array, of any library. Scalars of NumPy are numbers."""
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        return False
    return af.registry.kind(value).category in ("array", "objects")


def _is_traced(x: Any) -> bool:
    backend = af.registry.kind(x).backend
    return backend is not None and backend.is_traced(x)


MODULE = " module"
"""The label of the module of a function."""

_GLOBAL = " global "


def _is_in_its_module(function: Any) -> bool:
    """Tell whether the globals of a function are those of the module that it names."""
    module = sys.modules.get(function.__module__)
    return module is not None and vars(module) is function.__globals__


class EnvironmentKeys(Keys):
    """Keys of values that code is compiled for, whatever their size."""

    max_objects = math.inf
    attributes_of_all = False

    def ignored(self, cls: type) -> frozenset[str]:
        """Leave out the random number generators of spaces, and the fields that dataclasses do not compare."""
        if issubclass(cls, Space):
            return frozenset(("_np_random",))
        if issubclass(cls, KeepsKey):
            return frozenset((_KEPT, *_not_compared(cls)))
        return _not_compared(cls)

    def compound(self, value: Any, cls: type) -> Hashable:
        """Take the key that an object keeps."""
        if not issubclass(cls, KeepsKey):
            return super().compound(value, cls)
        own = value.__dict__
        kept: _Kept | None = own.get(_KEPT)
        if kept is not None:
            for held, content in zip((own, *kept.inner), kept.contents, strict=True):
                same = map(operator.is_, map(held.get, content), content.values())
                if len(held) - (_KEPT in held) != len(content) or not all(same):
                    break
            else:
                return kept.key
        key, objects = super().compound(value, cls), list[Any]()
        own.pop(_KEPT, None)
        if self._is_constant(value, objects):
            own[_KEPT] = _Kept(key, objects)
        return key

    def parts(self, value: Any, cls: type) -> Iterable[tuple[str, Any]] | None:
        """Take the globals that a copy of a function uses: one that was pickled by value has a module of its own."""
        parts = super().parts(value, cls)
        if parts is None and issubclass(cls, Immutable):
            return []  # one of its bases is of C, and it has no attributes
        if parts is None or cls is not types.FunctionType or _is_in_its_module(value):
            return parts
        held, names = value.__globals__, set(names_in(value.__code__))
        if names & ANY_GLOBAL:
            return parts
        used = [
            (f"{_GLOBAL}{name}", Same(held[name]) if is_array(held[name]) else held[name])
            for name in sorted(names & held.keys())
        ]
        return [*(part for part in parts if part[0] != MODULE), *used]

    def _is_constant(self, value: Any, objects: list[Any]) -> bool:
        """Tell whether nothing that is compared in a value can be changed, and collect its immutable objects."""
        cls: Any = type(value)
        if isinstance(value, Immutable):
            objects.append(value)
            ignored = self.ignored(cls)
            parts = {name: part for name, part in attributes(value) if name not in ignored}
            seen = parts.keys() <= value.__dict__.keys()  # not slots
            return seen and all(self._is_constant(part, objects) for part in parts.values())
        if cls in (tuple, frozenset):
            return all(self._is_constant(part, objects) for part in value)
        return isinstance(value, type) or cls in _CONSTANTS

    def array(self, x: Any) -> Hashable:
        """Compare NumPy arrays by their contents, and other arrays by identity."""
        if not isinstance(x, np.ndarray):
            return Same(x)
        if x.dtype.hasobject:
            return "O", x.shape, tuple(map(self.of, x.flat))
        return x.dtype.str, x.shape, _contents(x)

    def opaque(self, value: Any) -> Hashable:
        """Compare values that cannot be hashed by identity."""
        try:
            return super().opaque(value)
        except Exception:  # of any kind, as this runs user code
            return Same(value)


def _not_compared(cls: type) -> frozenset[str]:
    if not dataclasses.is_dataclass(cls):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(cls) if not field.compare)


class _CodeKeys(EnvironmentKeys):
    """Keys of functions, and of the attributes that their code names. Arrays among them are refused."""

    attributes_of_all = True

    def __init__(self) -> None:
        super().__init__()
        self._names: frozenset[str] = frozenset()
        self._owners: set[int] = set()
        self._objects = 0
        self._of_globals = EnvironmentKeys()

    def array(self, x: Any) -> Hashable:
        """Refuse an array, unless it is traced and its trace ends with the function that holds it."""
        if self._objects or not _is_traced(x):
            raise HoldsArrayError
        return super().array(x)

    def compound(self, value: Any, cls: type) -> Hashable:
        """Restore the previous names after a value was visited."""
        if issubclass(cls, (Immutable, Space)):
            return identity(value)
        before = self._names, self._objects
        try:
            return super().compound(value, cls)
        finally:
            self._names, self._objects = before

    def part(self, label: str, part: Any) -> Hashable:
        """Note where an array is. Arrays in globals are not searched for."""
        if label.startswith(_GLOBAL):
            return self._of_globals.of(part)
        try:
            return super().part(label, part)
        except HoldsArrayError as error:
            error.labels.append(label)
            raise

    def parts(self, value: Any, cls: type) -> Iterable[tuple[str, Any]] | None:
        """Leave out the attributes that no code names."""
        if isinstance(value, _OPAQUE):
            return None
        parts = super().parts(value, cls)
        if cls is types.FunctionType:
            self._names |= names_of(value)
        elif cls is types.MethodType:
            self._owners.add(id(value.__self__))
            self._names |= names_of(value.__func__)
        if parts is None or isinstance(value, _PASSING):
            return parts
        # traced values are valid until their function returns, but an object that keeps them lives on
        self._objects += 1
        if compares(cls):
            return parts
        self._names = names = names_with_methods(self._names, cls, id(value) not in self._owners)
        held = [
            (f".{name}", part)
            for name, part in _all_attributes(value)
            if name in names or name == "__wrapped__" or names & ANY
        ]
        return [("", Same(value)), *held]


_DIGESTS: dict[int, tuple[bytes, bytes]] = {}
"""The last contents of large arrays, and their digests."""

_SMALL = 256
"""Up to this many bytes, the contents of an array are its key, and not a digest of them."""

_LARGEST = 2**26
"""Up to this many bytes, the contents of an array are kept to save computing the digest."""


def _contents(x: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of a small array, or a digest of those of a large one.

    Arrays can change, and computing a digest takes ten times as long as comparing all bytes with those that it was
    computed from. So these are kept as long as the array exists, unless they would take too much memory.
    """
    data = x.tobytes()
    if len(data) <= _SMALL:
        return data
    if len(data) > _LARGEST:
        return digest_of(data)
    known = _DIGESTS.get(id(x))
    if known is None:
        weakref.finalize(x, _DIGESTS.pop, id(x), None)
    if known is None or known[0] != data:
        known = _DIGESTS[id(x)] = data, digest_of(data)
    return known[1]


def digest_of(data: bytes) -> bytes:
    """Return a digest that stands for the data in a key."""
    return hashlib.blake2b(data, digest_size=32).digest()


_OPAQUE = (numbers.Number, os.PathLike, enum.Enum)
"""Objects whose attributes hold no arrays."""

_PASSING = (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict, deque)


def _all_attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object, including values of cached properties."""
    return list({**getattr(value, "__dict__", {}), **dict(attributes(value))}.items())


def held_arrays(env: Any) -> frozenset[int]:
    """Return the ids of the NumPy arrays in the attributes of an environment and of its classes."""
    ids: set[int] = set()
    seen: dict[int, Any] = {}
    todo = [env, *(value for base in type(env).__mro__[:-1] for value in vars(base).values())]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen[id(value)] = value
        if isinstance(value, np.ndarray):
            ids.add(id(value))
            todo += [value.base, *(value.flat if value.dtype.hasobject else ())]
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            todo += value
        else:
            todo += [part for _, part in _all_attributes(value)]
    return frozenset(ids)


_PLAIN = (str, bytes, bool, int, float, type(None), type, types.FunctionType, types.ModuleType)
