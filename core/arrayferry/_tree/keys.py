"""Keys of values. Values with equal keys have the same type and contents.

Unlike Python's `==`, keys distinguish 1 from 1.0 and True, 0.0 from -0.0, and an object of a class from an object of a
derived class. The key of a value that cannot be read equals no other key.
"""

from __future__ import annotations

import copyreg
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator
from types import MappingProxyType, MethodType
from typing import Any

from arrayferry._types import AnyTree

MAX_DEPTH, MAX_OBJECTS = 150, 30_000
SMALL = 4_096
"""The maximum size in bytes of a NumPy array in a key. A larger array has a key that no other value has."""

_PLAIN = (bool, int, str, bytes, type(None), type(...))
_PARTS: dict[type, Callable[[Any], Any]] = {
    float: float.hex,
    list: tuple,
    tuple: tuple,
    set: frozenset,
    frozenset: frozenset,
    MethodType: lambda method: (method.__func__, method.__self__),
    MappingProxyType: lambda proxy: (proxy.copy(),),
}
_OF_OBJECT: Any = getattr(copyreg, "__newobj__")  # noqa: B009
_OWN = {"__reduce_ex__", "__reduce__"}
"""Methods by which a class determines the reduced form of its objects, for pickling.

By default, the reduced form is a tuple whose first item is `_OF_OBJECT`.
"""

_STRUCTURES = ("PyTreeDef", "PyTreeSpec")
"""Names of classes of JAX and optree. Objects are compared by `==`, since equal objects may be pickled differently."""

Special = Callable[[Any], Hashable | None]


class IdentityKey(weakref.ref[Any]):
    """The key of an object that equals only itself. The key does not keep the object alive."""

    __slots__ = ("_id",)

    def __init__(self, value: AnyTree) -> None:
        self._id = id(value)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IdentityKey) and self() is other() is not None)

    def __hash__(self) -> int:
        return self._id


class _Equal:
    """The key of an object that can only be compared by `==`. If `==` raises an error, the objects are not equal."""

    def __init__(self, value: AnyTree) -> None:
        self.value, self._hash = value, hash(value)

    def __eq__(self, other: Any) -> bool:
        try:
            return bool(self.value == other.value)
        except Exception:
            return False

    def __hash__(self) -> int:
        return self._hash


def exact_key(value: AnyTree, special: Special | None = None) -> Hashable:
    """Return a key for the type and the contents of a value.

    The contents of an object are the values that pickle would store. An object whose class does not define `__eq__`,
    such as a function, is compared by identity, and so is an array of JAX. A value that is too large, or whose contents
    may change, such as a tensor of PyTorch, has a key that equals no other key.

    Args:
        value: anything.
        special: a function that is called with the value and with each part of the value. It returns None to compare
            the part as above. Otherwise it returns a tuple or frozenset of smaller parts to compare, or a finished key.

    Examples:
        >>> from arrayferry.extending import exact_key
        >>> exact_key({"size": [3, 4]}) == exact_key({"size": [3, 4]})
        True
        >>> exact_key({"size": [3, 4]}) == exact_key({"size": [3, 4.0]})
        False
    """
    try:
        return _key(value, special, iter(range(MAX_OBJECTS)), {})
    except MemoryError:
        raise
    except Exception:  # the object cannot be examined, or has too many parts
        return object()


def _key(
    value: AnyTree, special: Special | None, left: Iterator[int], depths: dict[int, int]
) -> Hashable:
    """Return the key of a value. `left` limits the parts. `depths` has the depths of values around `value`, by id."""
    cls = type(value)
    if cls in _PLAIN:
        return cls, value
    value_id = id(value)
    if value_id in depths:
        return cls, len(depths) - depths[value_id]
    parts = special(value) if special else None
    if parts is None:
        parts = _PARTS[cls](value) if cls in _PARTS else _parts(value, cls)
    if not isinstance(parts, (tuple, frozenset)):
        return cls, parts
    if len(depths) == MAX_DEPTH or next(left, None) is None:
        raise RecursionError("the value has too many parts for a key")
    depths[value_id] = len(depths)
    keys = type(parts)([_key(part, special, left, depths) for part in parts])
    del depths[value_id]
    return cls, keys


def _parts(value: AnyTree, cls: Any) -> Any:
    """Return a tuple of the parts of an object, or a key for the object if the parts cannot be read or compared."""
    if cls.__eq__ is object.__eq__ or isinstance(value, (type, _class_of("jax", "Array"))):
        return IdentityKey(value) if cls.__weakrefoffset__ else _Equal(value)
    is_array = hasattr(cls, "__len__") and (hasattr(cls, "__array__") or hasattr(cls, "__dlpack__"))
    is_small = isinstance(value, _class_of("numpy", "ndarray")) and value.nbytes <= SMALL
    if is_array and not is_small and not isinstance(value, (str, bytes)):
        return object()
    try:
        reduced: Any = value.__reduce_ex__(2) if cls.__name__ not in _STRUCTURES else None
        parts = reduced[:3] + tuple(tuple(items or ()) for items in reduced[3:5])
    except Exception:  # some objects that are implemented in C cannot be reduced
        return _Equal(value)
    if reduced[0] is _OF_OBJECT or not _OWN.isdisjoint(vars(cls)):
        return parts
    # add the attributes, since the reduced form of a class derived from `Decimal`, for example, lacks them
    return *parts, object.__getstate__(value)


def _class_of(module: str, name: str) -> Any:
    """Return a class of a module for `isinstance`, or an empty tuple if the module has not been imported."""
    return getattr(sys.modules.get(module), name, ())
