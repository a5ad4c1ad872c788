"""The structures that Python itself has, and what JAX knows as pytrees.

Each gives its children in order and rebuilds itself around others, never altering the original. This
module knows structures; it never looks at arrays, but for NumPy's object arrays, which are structures.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, MemberDescriptorType
from typing import Any

from ._container import Container
from ._errors import StructureError

__all__ = ["OBJECT_ARRAY", "container_for"]


def _key_step(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:
        text = f"<{type(key).__name__} whose repr fails>"
    return f"[{text if len(text) <= 60 else text[:57] + '...'}]"


def _blank(value: Any) -> Any:
    """An object of the same class as `value` that no `__init__` has touched."""
    cls: Any = type(value)
    try:
        return object.__new__(cls)
    except TypeError:
        return _bare(value)


def _bare(value: Any) -> Any:
    cls: Any = type(value)
    return cls.__new__(cls)


def _copy_state(new: Any, old: Any) -> None:
    """Give `new` the attributes of `old`, but for what is cached, which may be stale.

    Slots are read by their descriptors, so that no code of the class runs. Those of attrs classes are
    their fields, which are set anyway, and their caches.
    """
    for base in type(old).__mro__:
        if "__attrs_attrs__" in base.__dict__:
            continue
        for slot in base.__dict__.values():
            if isinstance(slot, MemberDescriptorType):
                try:
                    slot.__set__(new, slot.__get__(old))
                except (AttributeError, TypeError):  # unset, or read-only
                    continue
    state = getattr(old, "__dict__", None)
    if type(state) is dict:
        for name, attribute in state.items():
            if not isinstance(_class_attribute(type(old), name), functools.cached_property):
                new.__dict__[name] = attribute


def _class_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


class _Dict(Container):
    transparent = True

    def children(self, value: Any) -> Sequence[Any]:
        return list(value.values())

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return type(value)(zip(value, children, strict=True))

    def steps(self, value: Any) -> Sequence[str]:
        return [_key_step(key) for key in value]


class _DefaultDict(_Dict):
    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return defaultdict(value.default_factory, zip(value, children, strict=True))


class _DictSubclass(_Dict):
    """A class derived from dict: its items and attributes are carried, its methods not asked."""

    def children(self, value: Any) -> Sequence[Any]:
        return list(_dict_of(value).values(value))

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _bare(value)
        base = _dict_of(value)
        if isinstance(value, defaultdict):
            new.default_factory = value.default_factory
        state = getattr(value, "__dict__", None)
        if state is value:  # attributes and items are one
            new.__dict__ = new
        else:
            _copy_state(new, value)
        for key, child in zip(base.keys(value), children, strict=True):
            base.__setitem__(new, key, child)
            if state and isinstance(key, str) and state.get(key) is dict.__getitem__(value, key):
                new.__dict__[key] = child  # an item that an attribute mirrors
        return new

    def steps(self, value: Any) -> Sequence[str]:
        return [_key_step(key) for key in _dict_of(value).keys(value)]


def _dict_of(value: Any) -> Any:
    """The class whose methods know the order of a dict's items."""
    return OrderedDict if isinstance(value, OrderedDict) else dict


class _UserDict(_Dict):
    def children(self, value: Any) -> Sequence[Any]:
        return list(value.data.values())

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _blank(value)
        _copy_state(new, value)
        new.data = dict(zip(value.data, children, strict=True))
        return new

    def steps(self, value: Any) -> Sequence[str]:
        return [_key_step(key) for key in value.data]


class _MappingProxy(_Dict):
    def rebuild(self, value: Any, children: list[Any]) -> Any:
        items: Any = dict(zip(value, children, strict=True))
        inner = value.copy()
        if type(inner) in _EXACT and list(inner) == list(items):
            items = _EXACT[type(inner)].rebuild(inner, children)
        return MappingProxyType(items)


class _ChainMap(_Dict):
    def children(self, value: Any) -> Sequence[Any]:
        return list(value.maps)

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _blank(value)
        _copy_state(new, value)
        new.maps = children
        return new

    def steps(self, value: Any) -> Sequence[str]:
        return [f".maps[{index}]" for index in range(len(value.maps))]


class _Mapping(_Dict):
    """Any other mapping: where it keeps its items is found out, or its constructor asked to take a dict.

    Whichever way it was made, the result is looked over before it is believed.
    """

    transparent = False

    def children(self, value: Any) -> Sequence[Any]:
        return [value[key] for key in value]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        items = dict(zip(value, children, strict=True))
        for way in (self._around_its_store, self._by_its_constructor, self._by_filling):
            try:
                new = way(value, items)
                if new is not None and _holds(new, items):
                    return new
            except Exception:
                continue
        cls = type(value)
        raise StructureError(
            f"a {cls.__module__}.{cls.__qualname__} cannot be rebuilt around converted arrays",
            remedy="Register a Container for it, or convert dict(value).",
        )

    def _around_its_store(self, value: Any, items: dict[Any, Any]) -> Any:
        for name, store in vars(value).items():
            if type(store) in (dict, OrderedDict) and _holds(value, store):
                new = _blank(value)
                _copy_state(new, value)
                new.__dict__[name] = type(store)(items)
                return new
        return None

    def _by_its_constructor(self, value: Any, items: dict[Any, Any]) -> Any:
        return type(value)(items)

    def _by_filling(self, value: Any, items: dict[Any, Any]) -> Any:
        new = type(value)()
        new.update(items)
        return new


def _holds(mapping: Any, items: dict[Any, Any]) -> bool:
    return list(mapping) == list(items) and all(mapping[key] is items[key] for key in items)


class _List(Container):
    transparent = True

    def children(self, value: Any) -> Sequence[Any]:
        return list(value)

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return children


class _ListSubclass(_List):
    def children(self, value: Any) -> Sequence[Any]:
        return list(list.__iter__(value))

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _bare(value)
        list.extend(new, children)
        _copy_state(new, value)
        return new


class _UserList(_List):
    def children(self, value: Any) -> Sequence[Any]:
        return list(value.data)

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _blank(value)
        _copy_state(new, value)
        new.data = children
        return new


class _Tuple(_List):
    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return tuple(children)


class _TupleSubclass(_Tuple):
    """A class derived from tuple, named tuples above all; no constructor is called."""

    transparent = False

    def children(self, value: Any) -> Sequence[Any]:
        return list(tuple.__iter__(value))

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = tuple.__new__(type(value), children)
        _copy_state(new, value)
        return new

    def steps(self, value: Any) -> Sequence[str]:
        fields = getattr(type(value), "_fields", None)
        if isinstance(fields, tuple) and len(fields) == len(value):
            return [f".{field}" for field in fields]
        return super().steps(value)


class _StructSequence(_TupleSubclass):
    """The named tuples of C code, such as what `torch.max` returns."""

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        return type(value)(children, value.__reduce__()[1][1])


class _Deque(_List):
    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _bare(value)
        deque.__init__(new, children, value.maxlen)
        _copy_state(new, value)
        return new


class _Fields(Container):
    """A class that lists its fields: dataclasses and attrs classes. No constructor is called."""

    def names(self, cls: type) -> Iterable[str]:
        raise NotImplementedError

    def present(self, value: Any) -> list[str]:
        return [name for name in self.names(type(value)) if hasattr(value, name)]

    def children(self, value: Any) -> Sequence[Any]:
        return [getattr(value, name) for name in self.present(value)]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _blank(value)
        _copy_state(new, value)
        self.fill(new, value, children)
        return new

    def fill(self, new: Any, value: Any, children: list[Any]) -> None:
        for name, child in zip(self.present(value), children, strict=True):
            object.__setattr__(new, name, child)

    def steps(self, value: Any) -> Sequence[str]:
        return [f".{name}" for name in self.present(value)]


class _WithFields(Container):
    """A class derived from one of Python's containers that lists fields besides."""

    def __init__(self, items: Container, fields: _Fields) -> None:
        self.items = items
        self.fields = fields

    def children(self, value: Any) -> Sequence[Any]:
        return [*self.items.children(value), *self.fields.children(value)]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        count = len(self.items.children(value))
        new = self.items.rebuild(value, children[:count])
        self.fields.fill(new, value, children[count:])
        return new

    def steps(self, value: Any) -> Sequence[str]:
        return [*self.items.steps(value), *self.fields.steps(value)]


class _Dataclass(_Fields):
    def names(self, cls: Any) -> Iterable[str]:
        return [field.name for field in dataclasses.fields(cls)]


class _Attrs(_Fields):
    def names(self, cls: Any) -> Iterable[str]:
        return [field.name for field in cls.__attrs_attrs__]


class _Pytree(Container):
    """A type that is registered as a pytree with JAX: Equinox modules, Flax structs."""

    def children(self, value: Any) -> Sequence[Any]:
        import jax

        children: list[Any] = jax.tree_util.tree_leaves(value, is_leaf=_all_but_the_first())
        return children

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        import jax

        structure = jax.tree_util.tree_structure(value, is_leaf=_all_but_the_first())
        return jax.tree_util.tree_unflatten(structure, children)

    def steps(self, value: Any) -> Sequence[str]:
        import jax

        flat, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=_all_but_the_first())
        return [jax.tree_util.keystr(path) for path, _ in flat]


def _all_but_the_first() -> Callable[[Any], bool]:
    """For JAX's `is_leaf`: the root is the first to be asked about, its children are leaves."""
    answers = iter((False,))
    return lambda node: next(answers, True)


class _ObjectArray(Container):
    """A NumPy array of Python objects, element by element."""

    transparent = True

    def children(self, value: Any) -> Sequence[Any]:
        import numpy

        return list(value.view(numpy.ndarray).flat)

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        import numpy

        new = numpy.empty_like(value, order="C")
        flat = new.view(numpy.ndarray).reshape(-1)
        for index, child in enumerate(children):
            flat[index] = child
        return new

    def steps(self, value: Any) -> Sequence[str]:
        import numpy

        return [str(list(index)) if index else "[()]" for index in numpy.ndindex(value.shape)]


OBJECT_ARRAY = _ObjectArray()

_EXACT: dict[type, Container] = {
    dict: _Dict(),
    OrderedDict: _Dict(),
    defaultdict: _DefaultDict(),
    list: _List(),
    tuple: _Tuple(),
    deque: _Deque(),
    MappingProxyType: _MappingProxy(),
}

_BY_BASE: tuple[tuple[type, Container], ...] = (
    (dict, _DictSubclass()),
    (list, _ListSubclass()),
    (tuple, _TupleSubclass()),
    (deque, _Deque()),
    (UserDict, _UserDict()),
    (UserList, _UserList()),
    (ChainMap, _ChainMap()),
)

_STRUCT_SEQUENCE = _StructSequence()
_PYTREE = _Pytree()
_DATACLASS = _Dataclass()
_ATTRS = _Attrs()
_MAPPING = _Mapping()


def container_for(value: Any) -> Container | None:
    """Find the container that looks inside a value, None for one that holds nothing.

    The order: the types of Python itself; types registered with JAX, where it is loaded; classes
    derived from Python's; dataclasses and attrs classes; any other mapping.
    """
    cls = type(value)
    exact = _EXACT.get(cls)
    if exact is not None:
        return exact
    if issubclass(cls, tuple):
        if _class_attribute(cls, "n_sequence_fields") is not None:
            return _STRUCT_SEQUENCE
    elif _is_pytree(value):
        return _PYTREE
    fields = _fields_of(cls)
    for base, container in _BY_BASE:
        if issubclass(cls, base):
            return container if fields is None else _WithFields(container, fields)
    if fields is not None:
        return fields
    return _MAPPING if issubclass(cls, Mapping) else None


def _fields_of(cls: type) -> _Fields | None:
    if isinstance(_class_attribute(cls, "__dataclass_fields__"), dict):
        return _DATACLASS
    if isinstance(_class_attribute(cls, "__attrs_attrs__"), tuple):
        return _ATTRS
    return None


def _is_pytree(value: Any) -> bool:
    jax: Any = sys.modules.get("jax")
    if not hasattr(jax, "tree_util"):
        return False
    try:
        return not jax.tree_util.all_leaves([value])
    except Exception:
        return False
