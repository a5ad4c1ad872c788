"""`Immutable`: an object that does not change once it is made, and has a key."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry.adapting import exact_key, once

from .keys import HasKey, Key, is_plain, parts_of

_CONSTRUCTORS = ("__init__", "__post_init__", "__attrs_post_init__", "__setstate__")
_DEPTH, KEPT = "_immutable_depth", "_immutable_kept"


class _Kept:
    """Marks an object as made, and keeps what was computed from it. A deep copy or an unpickled one makes its own.

    Attributes:
        key: its key, None until it is needed.
        memo: whatever else follows from its attributes.
    """

    def __init__(self) -> None:
        self.key: Key | None = None
        self.memo: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _constructor(function: Any) -> Any:
    """Let an object be immutable once its outermost constructor returns."""

    @functools.wraps(function)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        before = vars(self).get(_DEPTH, 0)
        vars(self)[_DEPTH] = before + 1
        try:
            function(self, *args, **options)
        finally:
            vars(self)[_DEPTH] = before
            if not before:
                del vars(self)[_DEPTH]
        first = next(base for base in type(self).__mro__ if "__init__" in vars(base))
        if not before and (issubclass(first, Immutable) or function.__name__ == "__setstate__"):
            freeze(self)

    return construct


@_constructor
def _made(self: Any, *args: Any) -> None:
    """Make it immutable, if no other constructor goes on."""


class _LastStep:
    """What the generated `__init__` of a dataclass or attrs class calls at its end.

    A metaclass that makes objects in a way of its own, such as Equinox's, makes them immutable too, and finds none.
    """

    def __get__(self, value: Any, owner: Any) -> Any:
        if type(owner).__call__ is not type.__call__:
            raise AttributeError
        return functools.partial(_made, value)


class Immutable(HasKey):
    """An object whose attributes do not change once it is made.

    Its NumPy arrays are copies that cannot be written to. Objects of the same class with the same contents are equal.
    """

    _immutable_parts_of: Callable[[Any], Hashable | None] = staticmethod(parts_of)
    __post_init__ = __attrs_post_init__ = _LastStep()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _CONSTRUCTORS:
            if type(vars(cls).get(name)) is FunctionType:
                setattr(cls, name, _constructor(vars(cls)[name]))

    @_constructor
    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for name, value in (item for part in parts if part for item in part.items()):
            object.__setattr__(self, name, value)

    def _immutable_key(self) -> Key:
        freeze(self)
        kept: _Kept = vars(self)[KEPT]
        if kept.key is None:
            fields: Any = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
            ignored = {KEPT, _DEPTH, *(field.name for field in fields if not field.compare)}
            parts = {
                name: part
                for name, part in _attributes(self).items()
                if name not in ignored
                and not isinstance(
                    getattr(type(self), name, None), (functools.cached_property, once)
                )
            }
            kept.key = Key((type(self), exact_key(parts, self._immutable_parts_of)))
        return kept.key

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self is other or self._immutable_key() == other._immutable_key()

    def __hash__(self) -> int:
        return hash(self._immutable_key())


def memo_of(value: Immutable) -> dict[Any, Any]:
    """Return a dict for what follows from the attributes of an object, which lives as long as the object."""
    freeze(value)
    memo: dict[Any, Any] = vars(value)[KEPT].memo
    return memo


def is_made(value: Immutable) -> bool:
    """Tell whether an object can no longer change."""
    cls: Any = type(value)
    makes_nothing = cls.__init__ is object.__init__ and cls.__new__ is object.__new__
    return vars(value).get(KEPT) is not None or (makes_nothing and _DEPTH not in vars(value))


def freeze(value: Immutable) -> None:
    """Make an object immutable, if it is not yet. Its key is made when it is first needed."""
    if vars(value).get(KEPT) is not None:
        return
    for name, part in _attributes(value).items():
        frozen = part if isinstance(part, Immutable) else _read_only(part, value, name)
        if frozen is not part:
            object.__setattr__(value, name, frozen)
    vars(value)[KEPT] = _Kept()


def _attributes(value: Any) -> dict[str, Any]:
    state = object.__getstate__(value)
    own, slots = state if isinstance(state, tuple) else (state, None)
    return {**(own or {}), **(slots or {})}


def _read_only(part: Any, value: Any, name: str) -> Any:
    """Return a tree with copies of NumPy arrays that cannot be written to."""
    try:
        leaves, layout = ([part], None) if isinstance(part, np.ndarray) else af.flatten(part)
    except af.StructureError:
        return part
    copies = [_copy(x, value, name) if isinstance(x, np.ndarray) else x for x in leaves]
    if all(x is y for x, y in zip(leaves, copies, strict=True)):
        return part
    return copies[0] if layout is None else layout.unflatten(copies)


def _copy(x: Any, value: Any, name: str) -> Any:
    if not is_plain(x):
        raise af.OptionError(
            f"{type(value).__name__}.{name} holds an array with a mask or of objects, which cannot be compared",
            remedy="Hold the numbers and the mask as arrays of their own, or a tuple of the objects.",
        )
    if x.flags.owndata and not x.flags.writeable:
        return x
    x = x.copy(order="K")
    x.flags.writeable = False
    return x
