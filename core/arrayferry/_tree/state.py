"""Creates objects with the class and the state of other objects, without calling `__init__`."""

from __future__ import annotations

import functools
from types import MemberDescriptorType
from typing import Any

from arrayferry._types import AnyTree


def with_state(value: AnyTree) -> Any:
    """Make an object with the class and the attributes of `value`, without calling `__init__`.

    The `__new__` of the class is called only if `object.__new__` refuses the class.
    """
    cls: Any = type(value)
    try:
        new = object.__new__(cls)
    except TypeError:
        new = by_new(value)
    copy_state(new, value)
    return new


def by_new(value: AnyTree) -> Any:
    """Make an object of the same class as `value` by its `__new__`, without calling `__init__`."""
    cls: Any = type(value)
    return cls.__new__(cls)


def copy_state(new: Any, old: Any) -> None:
    """Copy the attributes of `old` to `new`, except cached properties, which may be outdated.

    Slots are read by their descriptors, so that no code of the class runs. The slots of attrs classes are not copied,
    since they are fields, which are set separately, or caches.
    """
    for base in type(old).__mro__:
        if "__attrs_attrs__" in base.__dict__:
            continue
        for slot in base.__dict__.values():
            if isinstance(slot, MemberDescriptorType):
                try:
                    slot.__set__(new, slot.__get__(old))
                except (AttributeError, TypeError):  # the slot is not set, or is read-only
                    continue
    state = getattr(old, "__dict__", None)
    if type(state) is dict:
        for name, attribute in state.items():
            if not isinstance(class_attribute(type(old), name), functools.cached_property):
                new.__dict__[name] = attribute


def has_attributes(cls: type) -> bool:
    """Return whether objects of a class can have attributes of their own. Most named tuples cannot."""
    if cls.__dictoffset__:
        return True
    return any(base.__dict__.get("__slots__") for base in cls.__mro__)


def class_attribute(cls: type, name: str) -> Any:
    """Look up an attribute of a class without running code of the class. Return None if there is no such attribute."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None
