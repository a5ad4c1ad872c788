"""Layouts: what a tree is made of, without its leaves. Unlike a `Tree`, they can be compared and hashed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from arrayferry._errors import StructureError
from arrayferry._repr import MOST, never_raises, shown

from .kind import Kind
from .tree import unreadable

__all__ = ["Layout", "flatten"]


class Layout:
    """What a tree is made of, without its leaves. It can be hashed, and compared with another one.

    Attributes:
        paths: how each leaf is reached, as Python would write it; "" for a tree that is one leaf.
        has_numbers: whether there are Python numbers in it, other than truth values.
    """

    __slots__ = ("_flat", "_hash", "_key", "_node", "has_numbers", "paths")

    def __init__(self, node: Any, key: Any, paths: list[str]) -> None:
        self._node = node
        self._key = key
        self.paths: list[str] = paths
        self._hash: int | None = None
        self._flat = _flat_type(node)
        self.has_numbers: bool = _has_numbers(node)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put a tree together around other leaves, as many as it has paths."""
        if self._flat is not None:
            return self._flat._make(leaves)
        return _join(self._node, iter(leaves))

    def is_of(self, cls: type) -> bool:
        """Tell whether this is a named tuple of this class whose elements are all leaves."""
        return self._flat is cls

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self._node, self._key, self.paths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self is other or self._key == other._key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._key)
        return self._hash

    @never_raises
    def __repr__(self) -> str:
        parts: list[str] = []
        length = 0
        for part in _written(self._key):
            parts.append(part)
            length += len(part)
            if length > MOST:
                parts.append("...")
                break
        return f"<Layout {''.join(parts)}>"


def flatten(
    value: Any, kind_of: Callable[[Any], Kind], *, everything: bool = False, prefix: str = ""
) -> tuple[list[Any], Layout]:
    """Take a tree apart into its leaves, in order, and its layout.

    Args:
        value: an array or a tree.
        kind_of: tells what a value is.
        everything: whether what is neither array nor container is a leaf too. If not, it belongs to the
            layout.
        prefix: what the paths begin with.

    Raises:
        StructureError: the tree contains itself.
    """
    leaves: list[Any] = []
    paths: list[str] = []
    node, key = _split(value, kind_of, everything, prefix, leaves, paths, ())
    return leaves, Layout(node, key, paths)


class _Leaf:
    """The place of a leaf."""

    def __reduce__(self) -> str:
        return "_LEAF"


_LEAF = _Leaf()


class _Kept:
    """A value of the layout."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Inner:
    """A container: how to rebuild it, a hollow one of its kind, and its children."""

    __slots__ = ("children", "container", "hollow")

    def __init__(self, container: Any, hollow: Any, children: list[Any]) -> None:
        self.container = container
        self.hollow = hollow
        self.children = children


def _has_numbers(node: Any) -> bool:
    if type(node) is _Inner:
        return any(map(_has_numbers, node.children))
    return type(node) is _Kept and type(node.value) in (int, float, complex)


def _flat_type(node: Any) -> Any:
    """Return the class of a named tuple of leaves alone, which is quick to take apart; None for others."""
    if type(node) is not _Inner or any(child is not _LEAF for child in node.children):
        return None
    cls = type(node.hollow)
    plain = (
        issubclass(cls, tuple) and cls.__len__ is tuple.__len__ and cls.__iter__ is tuple.__iter__
    )
    return cls if plain and len(getattr(cls, "_fields", ())) == len(node.children) else None


def _split(
    value: Any,
    kind_of: Callable[[Any], Kind],
    everything: bool,
    path: str,
    leaves: list[Any],
    paths: list[str],
    above: tuple[int, ...],
) -> tuple[Any, Any]:
    kind = kind_of(value)
    container = kind.container if kind.what == "container" else None
    if container is None:
        if not everything and not kind.is_array and kind.what != "deferred":
            return _Kept(value), (type(value), _hashable(value))
        leaves.append(value)
        paths.append(path)
        return _LEAF, "*"
    if id(value) in above:
        raise StructureError(
            f"the {type(value).__name__} at {path or 'the top'} contains itself",
            remedy="Remove the cycle: a tree cannot contain itself.",
        )
    try:
        inside, steps = list(container.children(value)), list(map(str, container.steps(value)))
        if len(inside) != len(steps):
            raise ValueError(f"{len(inside)} children have {len(steps)} steps")
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise unreadable(value, container, error, path) from error
    above = (*above, id(value))
    parts = [
        _split(child, kind_of, everything, path + step, leaves, paths, above)
        for child, step in zip(inside, steps, strict=True)
    ]
    hollow = _hollow(value, container, len(inside))
    static = _static(hollow)
    node = _Inner(container, hollow, [part for part, _ in parts])
    return node, (type(value), tuple(steps), tuple(key for _, key in parts), static)


def _hollow(value: Any, container: Any, count: int) -> Any:
    """Return a container without its children, or the value itself where there is no such thing."""
    if not count:
        return value
    try:
        hollow = container.rebuild(value, [None] * count)
    except Exception:  # it can hold nothing but arrays
        return value
    return hollow if type(hollow) is type(value) else value


def _static(hollow: Any) -> Any:
    """Return what a pytree of JAX holds besides its children, such as static fields; None for other containers."""
    jax = sys.modules.get("jax")
    if jax is None or isinstance(hollow, (dict, list, tuple)):
        return None
    return _hashable(jax.tree_util.tree_structure(hollow))


def _join(node: Any, leaves: Any) -> Any:
    if node is _LEAF:
        return next(leaves)
    if type(node) is _Kept:
        return node.value
    children = [_join(child, leaves) for child in node.children]
    return node.container.rebuild(node.hollow, children)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _written(key: Any) -> Iterator[str]:
    """Write the key of a layout for people, part by part."""
    if key == "*":
        yield "array"
    elif len(key) == 2:
        yield shown(key[1]) if key[0] is type(key[1]) else f"<{key[0].__name__}>"
    else:
        cls, steps, parts, _ = key
        yield f"{cls.__name__}("
        for index, (step, part) in enumerate(zip(steps, parts, strict=True)):
            yield f"{', ' if index else ''}{step[:MOST]}: "
            yield from _written(part)
        yield ")"
