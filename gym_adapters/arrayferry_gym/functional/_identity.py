"""What tells a value from others for compiled code, which is shared by those that are the same.

`==` does not look close enough: 1 equals 1.0 and True, also deep in a value, and 0.0 equals -0.0. Nor may it be asked
for some values, such as arrays. So each value has a key of types and contents.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import numbers
import os
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import Space

import arrayferry as af

__all__ = ["HoldsArrayError", "Same", "difference", "held_arrays", "identity", "is_array"]

Key = Any
"""What can be hashed and compared: a leaf, or `(type, ((label, key), ...))` for what has parts."""


class Same:
    """Equal only for the very same object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class HoldsArrayError(Exception):
    """An array was found where code that is compiled once would not see it change.

    Attributes:
        labels: where, from the inside to the outside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []


def identity(value: Any, *, code: bool = False) -> Key:
    """Return the key of a value.

    Arrays of NumPy have their contents in it; other arrays, and objects without a comparison of their own, are told
    by which object they are. Functions are the same if their code is, and all that it refers to.

    Args:
        value: anything.
        code: whether to look for arrays in functions and in the objects that their code uses: in what they close
            over, their defaults, and the attributes that the code names. Else objects are told by which they are.

    Raises:
        HoldsArrayError: one was found there.
    """
    return _Walk(code).key(value, frozenset(), frozenset() if code else None)


def is_array(value: Any) -> bool:
    """Tell whether a value is an array, of any library. Scalars of NumPy are numbers."""
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        return False
    return af.registry.kind(value).what in ("array", "objects")


def _is_traced(x: Any) -> bool:
    backend = af.registry.kind(x).backend
    return backend is not None and backend.is_traced(x)


class _Walk:
    """One walk through a value.

    Args:
        strict: whether arrays are refused.
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._visited: dict[int, tuple[int, Any]] = {}
        self._owners: set[int] = set()
        self._objects = 0

    def key(self, value: Any, above: frozenset[int], names: frozenset[str] | None) -> Key:
        """Return the key of a value.

        Args:
            value: the value.
            above: the ids of the objects that it is in.
            names: the attributes that code names, None where objects are told by which they are.
        """
        cls = type(value)
        if cls in _LEAVES:
            return cls, value
        if cls is float:
            return cls, value.hex()
        if cls is complex:
            return cls, value.real.hex(), value.imag.hex()
        if isinstance(value, np.generic):
            return cls, value.dtype.str, value.tobytes()
        if is_array(value):
            if self._strict and (self._objects or not _is_traced(value)):
                raise HoldsArrayError
            return _of_array(value)
        if id(value) in above:
            return cls, "itself"
        if cls is types.FunctionType or (names is not None and not _compares(cls)):
            if _of_jax(value if cls is types.FunctionType else cls):
                inner = getattr(value, "__wrapped__", None)  # of jax.jit, for instance
                if cls is types.FunctionType or inner is None or _of_jax(inner):
                    return cls, Same(value)
                return cls, self.key(inner, above, names)
            known = self._visited.get(id(value))
            if known is not None:  # many functions refer to each other
                return cls, known[0]
            self._visited[id(value)] = len(self._visited), value
        parts, names = self._parts(value, cls, names)
        if parts is None:
            return cls, _comparable(value)
        above |= {id(value)}
        # the values of a traced function end with it, but an object that keeps them does not
        is_object = names is not None and not isinstance(value, _PASSING)
        self._objects += is_object
        found = []
        for label, part in parts:
            try:
                found.append((label, self.key(part, above, names)))
            except HoldsArrayError as error:
                error.labels.append(label)
                raise
        self._objects -= is_object
        if isinstance(value, (set, frozenset)):
            return cls, frozenset(found)
        return cls, tuple(found)

    def _parts(
        self, value: Any, cls: type, names: frozenset[str] | None
    ) -> tuple[list[tuple[str, Any]] | None, frozenset[str] | None]:
        """Return the parts of a value with their labels, None for those without, and the names that code uses."""
        if isinstance(value, (tuple, list, deque)):
            fields = getattr(cls, "_fields", None)
            parts = [
                (f".{fields[i]}" if fields else f"[{i}]", part) for i, part in enumerate(value)
            ]
            return parts, names
        if isinstance(value, dict):
            parts = []
            for key, part in value.items():
                parts += [(f"key {key!r:.40}", key), (f"[{key!r:.40}]", part)]
            return parts, names
        if isinstance(value, (set, frozenset)):
            return [("{}", part) for part in value], names
        if cls is types.FunctionType:
            return _of_function(value), _named(value, names)
        if cls is types.MethodType:
            function, owner = value.__func__, value.__self__
            self._owners.add(id(owner))
            return [("", function), ("", owner)], _named(function, names)
        if isinstance(value, functools.partial):
            parts = [("", value.func), (".args", value.args), (".keywords", value.keywords)]
            return parts, names
        if isinstance(value, Space):  # their random numbers do not matter
            return [part for part in _attributes(value) if part[0] != "._np_random"], names
        return self._of_object(value, cls, names)

    def _of_object(
        self, value: Any, cls: type, names: frozenset[str] | None
    ) -> tuple[list[tuple[str, Any]] | None, frozenset[str] | None]:
        if _is_opaque(value):
            return None, names
        compared = _compares(cls)
        if names is not None and not compared:
            names = _extended(names, cls, id(value) not in self._owners)
            held = [
                (label, part)
                for label, part in _attributes(value)
                if label[1:] in names or label == ".__wrapped__" or names & _ANY
            ]
            return [(" itself", _Itself(value)), *held], names
        parts = _compared(value) if compared else []
        return (parts if parts or (compared and hasattr(value, "__dict__")) else None), names


def _of_jax(x: Any) -> bool:
    """Tell whether a function or a class is one of JAX's own, which hold nothing of the user's."""
    return str(getattr(x, "__module__", "")).partition(".")[0] in ("jax", "jaxlib")


_LEAVES = {
    type(None),
    bool,
    int,
    str,
    bytes,
    range,
    types.BuiltinFunctionType,
    type,
    types.CodeType,
}

_PASSING = (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict, deque)

_SMALL = 256
"""Up to how many bytes the contents of an array are kept, rather than a digest of them."""


class _Itself(Same):
    """The object of attributes that are listed beside it."""

    __slots__ = ()


def _of_array(x: Any) -> Key:
    if not isinstance(x, np.ndarray):
        return type(x), Same(x)
    if x.dtype.hasobject:
        return type(x), x.shape, tuple(identity(item) for item in x.flat)
    data = x.tobytes()
    if len(data) > _SMALL:
        data = hashlib.blake2b(data, digest_size=32).digest()
    return type(x), x.dtype.str, x.shape, data


def _comparable(value: Any) -> Any:
    """Return a value if it can be compared at once, else the object itself."""
    if isinstance(value, Same):
        return value
    try:
        hash(value)
    except Exception:  # of any kind, as it is the user's code
        return Same(value)
    return value if _compares(type(value)) else Same(value)


def _compares(cls: Any) -> bool:
    return cls.__eq__ is not object.__eq__


def _is_opaque(value: Any) -> bool:
    """Tell whether an object has no parts: classes, modules, numbers, paths, members of enumerations."""
    kinds = (type, types.ModuleType, Same, numbers.Number, os.PathLike, enum.Enum)
    return isinstance(value, kinds)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object with their labels, also those in slots."""
    found = {f".{name}": part for name, part in sorted(getattr(value, "__dict__", {}).items())}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                found[f".{name}"] = object.__getattribute__(value, name)
            except AttributeError:
                pass
    return [item for item in found.items() if item[0] not in (".__dict__", ".__weakref__")]


def held_arrays(env: Any) -> frozenset[int]:
    """Return the ids of the NumPy arrays in the attributes of an environment and of its classes."""
    found: set[int] = set()
    seen: dict[int, Any] = {}
    todo = [env, *(value for base in type(env).__mro__[:-1] for value in vars(base).values())]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen[id(value)] = value
        if isinstance(value, np.ndarray):
            found.add(id(value))
            todo += [value.base, *(value.flat if value.dtype.hasobject else ())]
        elif isinstance(value, dict):
            todo += value.values()
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            todo += value
        else:
            todo += [part for _, part in _attributes(value)]
    return frozenset(found)


_PLAIN = (str, bytes, bool, int, float, type(None), type, types.FunctionType, types.ModuleType)


def _compared(value: Any) -> list[tuple[str, Any]]:
    """Return what tells an object from others, if it is compared by that: its attributes, but not what is derived."""
    cls = type(value)
    left_out = {
        name
        for base in cls.__mro__
        for name, member in vars(base).items()
        if isinstance(member, functools.cached_property)
    }
    if dataclasses.is_dataclass(value):
        left_out |= {field.name for field in dataclasses.fields(value) if not field.compare}
    parts = [part for part in _attributes(value) if part[0][1:] not in left_out]
    if isinstance(value, (str, bytes)):
        parts.append((" value", str(value) if isinstance(value, str) else bytes(value)))
    return parts


def _of_function(function: Any) -> list[tuple[str, Any]]:
    """Return what makes a function: its code, and the values that it holds."""
    parts = [(" code", function.__code__), (" module", _Itself(function.__globals__))]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            parts.append((f" {name}", cell.cell_contents))
        except ValueError:  # it is not filled yet
            pass
    parts.append((" defaults", function.__defaults__))
    parts.append((" keyword defaults", function.__kwdefaults__))
    parts += [(f".{name}", part) for name, part in sorted(function.__dict__.items())]
    return parts


_ANY = frozenset({"getattr", "vars", "__dict__", "asdict", "astuple", "fields"})
"""Names with which code may reach any attribute."""

_NEVER = frozenset({
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__repr__", "__str__", "__eq__", "__hash__",
    "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__del__", "__dir__",
    "__format__", "__sizeof__", "__class_getitem__",
})  # fmt: skip
"""Methods that a policy does not run."""


def _named(function: Any, names: frozenset[str] | None) -> frozenset[str] | None:
    return None if names is None else names | _names(function)


_KNOWN: weakref.WeakKeyDictionary[types.CodeType, frozenset[str]] = weakref.WeakKeyDictionary()


def _names(function: Any) -> frozenset[str]:
    """Return the names in the code of a function, and in that of the functions of its module that it names."""
    known = _KNOWN.get(function.__code__)
    if known is not None:
        return known
    found: set[str] = set()
    todo, done = [function], set()
    while todo:
        own = todo.pop()
        done.add(own)
        names = set(_in_code(own.__code__))
        found |= names
        for name in names:
            other = own.__globals__.get(name)
            known_here = type(other) is types.FunctionType and other.__module__ == own.__module__
            if known_here and other not in done:
                todo.append(other)
    _KNOWN[function.__code__] = known = frozenset(found)
    return known


def _in_code(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _in_code(constant)


@functools.lru_cache(maxsize=512)
def _extended(names: frozenset[str], cls: type, special_too: bool) -> frozenset[str]:
    """Return names with those in the methods of a class that they name, and perhaps in its special methods."""
    members = {
        name: member for base in reversed(cls.__mro__[:-1]) for name, member in vars(base).items()
    }
    special = {name for name in members if name[:2] == name[-2:] == "__"} - _NEVER
    found = set(names)
    todo, done = found | (special if special_too else set()), set()
    while todo:
        name = todo.pop()
        done.add(name)
        member = members.get(name)
        for function in (getattr(member, part, None) for part in ("__func__", "fget", "func")):
            member = function or member
        if type(member) is types.FunctionType:
            new = _names(member)
            found |= new
            todo |= new - done
    return frozenset(found)


def difference(one: Key, other: Key) -> str:
    """Return where two keys differ first, as labels: ".size", "['a'][0]"."""
    for (label, mine), (found, its) in zip(_pairs(one), _pairs(other), strict=False):
        if label == found and mine != its:
            return str(label) + difference(mine, its)
    return ""


def _pairs(key: Key) -> Any:
    """Return the parts of a key with their labels, none for a leaf."""
    parts = key[1] if isinstance(key, tuple) and len(key) == 2 else None
    whole = isinstance(parts, tuple) and all(
        type(part) is tuple and len(part) == 2 for part in parts
    )
    return parts if whole else ()
