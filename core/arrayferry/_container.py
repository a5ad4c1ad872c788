"""`Container`: a structure to look inside for arrays, and those that Python itself has.

A container gives its children in order and rebuilds itself around others, never altering the
original. This module knows structures; it never looks at arrays, but for NumPy's object arrays,
which are structures.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from abc import ABC, abstractmethod
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import Any

from ._errors import StructureError

__all__ = ["OBJECT_ARRAY", "Container", "container_for"]


class Container(ABC):
    """A kind of structure that may hold arrays. Subclass it.

    Attributes:
        types: the classes that it looks inside, or dotted paths of them, which are looked up only
            once their package has been imported by somebody. Subclasses count as well.
        transparent: whether one that holds no array at all is still rebuilt, as a dict is. If not,
            it comes back as the very same object.

    Example:
        >>> import arrayferry as af
        >>> class Pair:
        ...     def __init__(self, left, right):
        ...         self.left, self.right = left, right
        >>> class Pairs(af.Container):
        ...     types = (Pair,)
        ...     def children(self, value):
        ...         return [value.left, value.right]
        ...     def rebuild(self, value, children):
        ...         return Pair(*children)
        ...     def steps(self, value):
        ...         return [".left", ".right"]
    """

    types: tuple[Any, ...] = ()
    transparent: bool = False

    @abstractmethod
    def children(self, value: Any) -> Sequence[Any]:
        """Give the values inside, in an order of their own."""

    @abstractmethod
    def rebuild(self, value: Any, children: list[Any]) -> Any:
        """Give a new container of the same type as `value`, with `children` in place of its own."""

    def steps(self, value: Any) -> Sequence[str]:
        """Say how each child is reached, as Python would write it: `"['a']"`, `"[0]"`, `".x"`."""
        return [f"[{index}]" for index in range(len(self.children(value)))]


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
    """Give `new` the attributes of `old`, but for cached properties, which may be stale."""
    cls = type(old)
    for klass in cls.__mro__:
        slots = klass.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{klass.__name__.lstrip('_')}{slot}" if _is_private(slot) else slot
            if name not in ("__dict__", "__weakref__") and hasattr(old, name):
                object.__setattr__(new, name, getattr(old, name))
    state = getattr(old, "__dict__", None)
    if state:
        cached = functools.cached_property
        new.__dict__.update(
            (name, attribute)
            for name, attribute in state.items()
            if not isinstance(getattr(cls, name, None), cached)
        )


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


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
        return list(dict.values(value))

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        new = _bare(value)
        put = OrderedDict.__setitem__ if isinstance(value, OrderedDict) else dict.__setitem__
        if isinstance(value, defaultdict):
            new.default_factory = value.default_factory
        state = getattr(value, "__dict__", None)
        if state is value:  # attributes and items are one
            new.__dict__ = new
        else:
            _copy_state(new, value)
        for key, child in zip(dict.keys(value), children, strict=True):
            put(new, key, child)
            if state and isinstance(key, str) and state.get(key) is dict.__getitem__(value, key):
                new.__dict__[key] = child  # an item that an attribute mirrors
        return new


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
        return MappingProxyType(dict(zip(value, children, strict=True)))


class _Mapping(_Dict):
    """Any other mapping: its constructor is asked to take a dict, and the result looked over."""

    transparent = False

    def children(self, value: Any) -> Sequence[Any]:
        return [value[key] for key in value]

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        cls = type(value)
        items = dict(zip(value, children, strict=True))
        try:
            new = cls(items)
            if _holds(new, items):
                return new
        except Exception:
            pass
        if isinstance(value, MutableMapping):
            try:
                new = cls()
                new.update(items)
                if _holds(new, items):
                    return new
            except Exception:
                pass
        raise StructureError(
            f"a {cls.__module__}.{cls.__qualname__} cannot be rebuilt around converted arrays",
            remedy="Register a Container for it, or convert dict(value).",
        )


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
        for name, child in zip(self.present(value), children, strict=True):
            object.__setattr__(new, name, child)
        return new

    def steps(self, value: Any) -> Sequence[str]:
        return [f".{name}" for name in self.present(value)]


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

        leaves: list[Any] = jax.tree_util.tree_leaves(value, is_leaf=lambda node: node is not value)
        return leaves

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        import jax

        structure = jax.tree_util.tree_structure(value, is_leaf=lambda node: node is not value)
        return jax.tree_util.tree_unflatten(structure, children)

    def steps(self, value: Any) -> Sequence[str]:
        import jax

        flat, _ = jax.tree_util.tree_flatten_with_path(
            value, is_leaf=lambda node: node is not value
        )
        return [jax.tree_util.keystr(path) for path, _ in flat]


class _ObjectArray(Container):
    """A NumPy array of Python objects, element by element."""

    transparent = True

    def children(self, value: Any) -> Sequence[Any]:
        return list(value.flat)

    def rebuild(self, value: Any, children: list[Any]) -> Any:
        import numpy

        new = numpy.empty(value.shape, object)
        flat = new.reshape(-1)
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
)

_STRUCT_SEQUENCE, _PYTREE, _DATACLASS, _ATTRS, _MAPPING = (
    _StructSequence(),
    _Pytree(),
    _Dataclass(),
    _Attrs(),
    _Mapping(),
)


def container_for(value: Any) -> Container | None:
    """Find the container that looks inside a value, None for one that holds nothing.

    The order: the types of Python itself; types registered with JAX, where it is loaded; classes
    derived from Python's; dataclasses and attrs classes; any other mapping.
    """
    cls = type(value)
    exact = _EXACT.get(cls)
    if exact is not None:
        return exact
    if issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields"):
        return _STRUCT_SEQUENCE
    if not hasattr(cls, "_fields") and _is_pytree(value):
        return _PYTREE
    for base, container in _BY_BASE:
        if issubclass(cls, base):
            return container
    if dataclasses.is_dataclass(cls):
        return _DATACLASS
    if "__attrs_attrs__" in cls.__dict__ or hasattr(cls, "__attrs_attrs__"):
        return _ATTRS
    if issubclass(cls, Mapping):
        return _MAPPING
    return None


def _is_pytree(value: Any) -> bool:
    jax = sys.modules.get("jax")
    if value is None or not hasattr(jax, "tree_util"):
        return False
    try:
        return not jax.tree_util.all_leaves([value])  # type: ignore[union-attr]
    except Exception:
        return False
