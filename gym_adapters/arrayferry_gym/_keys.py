"""Keys for the objects that code is compiled for, and objects that do not change after construction.

Objects with equal keys share compiled code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import operator
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space

import arrayferry as af
from arrayferry._utilities.cache import once
from arrayferry._utilities.compilers import uncompiled
from arrayferry.extending import exact_key
from arrayferry.typing import AnyArray, AnyTree

KEPT = "_immutable_kept"
_ONLY_SELF = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)])
"""The signature of the constructor of a class that takes no arguments."""
_OF_SPACE = ("_np_random", "low_repr", "high_repr")
"""The attributes that a space changes when it is sampled or printed."""


class Key:
    """A key that stores its hash.

    Args:
        value: the value that is hashed and compared.
    """

    __slots__ = ("__weakref__", "_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value: Any = value
        self._hash = hash(value)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and bool(self.value == other.value))

    def __hash__(self) -> int:
        return self._hash


def parts_of(value: AnyTree) -> Hashable | None:
    """Return the parts or the key that represent a value in comparisons, or None to leave the value to `exact_key`."""
    if isinstance(value, Immutable):
        return value._immutable_key()
    if isinstance(value, Space):
        return ({name: part for name, part in vars(value).items() if name not in _OF_SPACE},)
    if isinstance(value, np.ndarray) and holds_numbers(value):
        return value.dtype, value.shape, hashlib.blake2b(value.tobytes(), digest_size=32).digest()
    return None


def holds_numbers(x: np.ndarray[Any, Any]) -> bool:
    """Tell whether an array has only numbers: no mask and no objects."""
    return not isinstance(x, np.ma.MaskedArray) and not x.dtype.hasobject


class _Memo(dict[Any, Any]):
    """Values computed from an immutable object, such as its key. Deep copies and unpickled objects start empty."""

    def __reduce__(self) -> Any:
        return _Memo, ()


class Immutable:
    """An object whose attributes do not change after it is made.

    Its NumPy arrays are copies that cannot be written to. Objects of the same class with the same contents are equal.
    """

    _immutable_parts_of: Callable[[Any], Hashable | None] = staticmethod(parts_of)

    if not TYPE_CHECKING:  # without this condition, type checkers would accept any arguments

        def __new__(cls, *args: Any, **options: Any) -> Any:
            if vars(cls).get("_immutable_class") is not cls:
                _freeze_after(cls, "__init__")
                _freeze_after(cls, "__setstate__")
                type.__setattr__(cls, "_immutable_class", cls)
            new = super().__new__
            return new(cls) if new is object.__new__ else new(cls, *args, **options)

    def __setstate__(self, state: AnyTree) -> None:
        for name, value in _attributes(state).items():
            object.__setattr__(self, name, value)
        vars(self).pop(KEPT, None)

    def _immutable_key(self) -> Key:
        memo = memo_of(self)
        if "key" not in memo:
            fields: Any = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
            # parameters of the constructor count, since compiled code may use them
            others = (field.name for field in fields if not field.compare and not field.init)
            ignored = {KEPT, *others}
            computed = functools.cached_property, once
            parts = {
                name: part
                for name, part in _attributes(object.__getstate__(self)).items()
                if name not in ignored and not isinstance(getattr(type(self), name, None), computed)
            }
            memo["key"] = Key((type(self), exact_key(parts, self._immutable_parts_of)))
        key: Key = memo["key"]
        return key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Immutable) or type(self) is not type(other):
            return NotImplemented
        return self is other or self._immutable_key() == other._immutable_key()

    def __hash__(self) -> int:
        return hash(self._immutable_key())


if not TYPE_CHECKING:
    # this signature applies to classes without an `__init__`
    Immutable.__new__.__signature__ = _ONLY_SELF


def _freeze_after(cls: Any, name: str) -> None:
    """Make objects of a class immutable when a method returns. The method may be generated or inherited."""
    method = getattr(cls, name)
    # a base class with instances has wrapped `object.__init__`
    if getattr(method, "__wrapped__", None) is object.__init__:
        method = object.__init__

    @uncompiled
    @functools.wraps(method)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        # the arguments are for __new__ only
        if method is object.__init__ and cls.__new__ is not Immutable.__new__:
            args, options = (), {}
        method(self, *args, **options)
        if type(self) is cls:  # if not, the constructor of a derived class continues
            freeze(self)

    if method is object.__init__ and cls.__new__ is Immutable.__new__:
        construct.__signature__ = _ONLY_SELF  # type: ignore[attr-defined]
    type.__setattr__(cls, name, construct)


def is_made(value: Immutable) -> bool:
    """Tell whether an object can no longer change."""
    return KEPT in vars(value)


def memo_of(value: Immutable) -> dict[Any, Any]:
    """Return the dict of an object for values computed from its attributes."""
    freeze(value)
    memo: dict[Any, Any] = vars(value)[KEPT]
    return memo


def freeze(value: Immutable) -> None:
    """Make an object immutable, unless it already is. Its key is computed when first needed."""
    if is_made(value):
        return
    for name, part in _attributes(object.__getstate__(value)).items():
        frozen = part if isinstance(part, Immutable) else _read_only(part, value, name)
        if frozen is not part:
            object.__setattr__(value, name, frozen)
    vars(value)[KEPT] = _Memo()


def _attributes(state: AnyTree) -> dict[str, Any]:
    """Return the attributes in a state from `object.__getstate__`, including slots."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return {**(attributes or {}), **(slots or {})}


def _read_only(part: Any, value: AnyTree, name: str) -> Any:
    """Return a tree with copies of NumPy arrays that cannot be written to."""
    try:
        leaves, layout = ([part], None) if isinstance(part, np.ndarray) else af.flatten(part)
    except af.StructureError:
        return part
    copies = [_copy(x, value, name) if isinstance(x, np.ndarray) else x for x in leaves]
    if all(map(operator.is_, leaves, copies)):
        return part
    return layout.unflatten(copies) if layout else copies[0]


def _copy(x: AnyArray, value: AnyTree, name: str) -> Any:
    if not holds_numbers(x):
        raise af.OptionError(
            f"{type(value).__name__}.{name} holds an array with a mask or of objects, which cannot be compared",
            remedy="Use separate arrays for numbers and mask, or a tuple of the objects.",
        )
    if x.flags.owndata and not x.flags.writeable:
        return x
    x = x.copy(order="K")
    x.flags.writeable = False
    return x
