"""Dicts and all other mappings."""

from __future__ import annotations

import builtins
import weakref
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from arrayferry._errors import StructureError
from arrayferry._plugin.container import Container
from arrayferry._types import AnyTree
from arrayferry._utilities.text import type_name

from .state import by_new, copy_state, with_state


def _items(keys: Iterable[Any], children: list[Any]) -> dict[Any, Any]:
    """Return a dict of the keys and children. Raise an error if a key has changed and now equals another key."""
    items = dict(zip(keys, children, strict=True))
    if len(items) != len(children):
        raise StructureError(
            f"a dict has {len(children)} keys, of which only {len(items)} differ, since a key was changed after it was "
            "added",
            remedy="Use keys that never change, such as text, or convert list(value.values()).",
        )
    return items


def _key_step(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__} whose repr fails>"
    return f"[{text if len(text) <= 60 else text[:57] + '...'}]"


class DictContainer(Container):
    transparent = True

    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(value.values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return _items(value, children)

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [_key_step(key) for key in value]


class OrderedDictContainer(DictContainer):
    """For `OrderedDict`. Attributes, such as the `_metadata` of PyTorch's state dicts, are copied too."""

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = OrderedDict(_items(value, children))
        copy_state(new, value)
        return new


class DefaultDictContainer(DictContainer):
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        return defaultdict(value.default_factory, _items(value, children))


class DictSubclassContainer(DictContainer):
    """For classes derived from dict. Items and attributes are copied without calling the methods of the class."""

    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(_dict_of(value).values(value))

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = by_new(value)
        dict_class = _dict_of(value)
        if isinstance(value, defaultdict):
            new.default_factory = value.default_factory
        state = getattr(value, "__dict__", None)
        if state is value:  # the object is its own `__dict__`
            new.__dict__ = new
        else:
            copy_state(new, value)
        for key, child in _items(dict_class.keys(value), children).items():
            dict_class.__setitem__(new, key, child)
            if state and isinstance(key, str) and state.get(key) is dict.__getitem__(value, key):
                new.__dict__[key] = child  # the object stores the item also as an attribute
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [_key_step(key) for key in _dict_of(value).keys(value)]


class FrozenDictContainer(DictContainer):
    """The container for `frozendict` of Python 3.15 and its subclasses. It calls no method that a subclass overrides."""

    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(_frozendict.values(value))

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        items = _items(_frozendict.keys(value), children)
        new = _frozendict.__new__(type(value), items)
        copy_state(new, value)
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [_key_step(key) for key in _frozendict.keys(value)]


_frozendict: Any = getattr(builtins, "frozendict", None)


def _dict_of(value: AnyTree) -> Any:
    """Return `OrderedDict` or `dict`, whichever has the methods that read the items of `value` in order."""
    return OrderedDict if isinstance(value, OrderedDict) else dict


class UserDictContainer(DictContainer):
    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(value.data.values())

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = with_state(value)
        new.data = _items(value.data, children)
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [_key_step(key) for key in value.data]


class MappingProxyContainer(DictContainer):
    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        items: Any = _items(value, children)
        inner_mapping = value.copy()
        if type(inner_mapping) in MAPPINGS and list(inner_mapping) == list(items):
            items = MAPPINGS[type(inner_mapping)].rebuild(inner_mapping, children)
        return MappingProxyType(items)


class ChainMapContainer(DictContainer):
    def children(self, value: AnyTree) -> Sequence[Any]:
        return list(value.maps)

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        new = with_state(value)
        new.maps = children
        return new

    def steps(self, value: AnyTree) -> Sequence[str]:
        return [f".maps[{index}]" for index in range(len(value.maps))]


class MappingContainer(DictContainer):
    """For all other mappings.

    A mapping is copied with another dict in place of the dict that stores its items, or its class is called with a dict
    of the items. Then `rebuild` checks that the result has the right items.
    """

    transparent = False

    def children(self, value: AnyTree) -> Sequence[Any]:
        return [value[key] for key in value]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        items = _items(value, children)
        if isinstance(value, weakref.WeakValueDictionary) and not _holds(value, items):
            raise StructureError(
                f"a {type(value).__name__} cannot store converted arrays, since Python deletes arrays that nothing else refers to",
                remedy="Convert dict(value), and keep the result.",
            )
        for copy_with in (_around_its_store, _by_its_constructor):
            with suppress(Exception):
                new = copy_with(value, items)
                if new is not None and _holds(new, items):
                    return new
        cls = type(value)
        raise StructureError(
            f"a {type_name(cls)} cannot be rebuilt with converted arrays",
            remedy="Register a Container for this class, or convert dict(value).",
        )


def _around_its_store(value: AnyTree, items: dict[Any, Any]) -> Any:
    for attr_name, store in vars(value).items():
        if type(store) in (dict, OrderedDict) and _holds(value, store):
            new = with_state(value)
            new.__dict__[attr_name] = type(store)(items)
            return new
    return None


def _by_its_constructor(value: AnyTree, items: dict[Any, Any]) -> Any:
    return type(value)(items)


def _holds(mapping: Any, items: dict[Any, Any]) -> bool:
    return list(mapping) == list(items) and all(mapping[key] is items[key] for key in items)


MAPPING = MappingContainer()
"""The container for mappings whose types are neither in `MAPPINGS` nor in `MAPPINGS_BY_BASE`."""

MAPPINGS: dict[type, Container] = {
    dict: DictContainer(),
    OrderedDict: OrderedDictContainer(),
    defaultdict: DefaultDictContainer(),
    MappingProxyType: MappingProxyContainer(),
}
"""Containers by the exact type of a mapping."""

MAPPINGS_BY_BASE: tuple[tuple[type, Container], ...] = (
    (dict, DictSubclassContainer()),
    (UserDict, UserDictContainer()),
    (ChainMap, ChainMapContainer()),
)
"""Containers for subclasses of these types. The first match is used."""

if _frozendict is not None:
    MAPPINGS[_frozendict] = FrozenDictContainer()
    MAPPINGS_BY_BASE += ((_frozendict, FrozenDictContainer()),)
