"""Trees: a value taken apart into its arrays, and put together again around others.

A container that is in two places stays one object. A cycle, and a depth that the interpreter cannot
follow, raise `StructureError`. The value itself is never altered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from arrayferry._errors import ConversionError, StructureError, describe_error
from arrayferry._options import Options
from arrayferry._plugin.call import ask_backend
from arrayferry._plugin.container import Container

from .foreign import (
    FOREIGN,
    has_own_attributes,
    is_foreign,
    is_plain,
    refuse_foreign,
    refuse_object,
)
from .kind import Kind

__all__ = ["Branch", "Leaf", "Tree", "holds_objects", "unreadable"]

MAX_DEPTH = 5_000
"""Levels that are followed at most, however high the interpreter's own limit is."""

_OPEN: Any = object()


class Leaf:
    """An array in a tree.

    Attributes:
        index: its place among the arrays of the tree.
    """

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Branch:
    """A container in a tree, and a node for each of its children.

    Attributes:
        leaves: whether there is a leaf in it.
        arrays: whether there is a leaf in it that is not made of a Python number.
        rebuilt: whether a new one is made, or it is returned as it is.
    """

    __slots__ = ("arrays", "built", "children", "container", "leaves", "rebuilt", "value")

    def __init__(
        self, value: Any, container: Container, children: list[Any], leaves: bool, arrays: bool
    ) -> None:
        self.value = value
        self.container = container
        self.children = children
        self.leaves = leaves
        self.arrays = arrays
        self.built: Any = _OPEN
        self.rebuilt = leaves
        if not leaves and container.transparent:  # a tuple cannot change, unless a part of it can
            self.rebuilt = type(value) is not tuple or any(
                type(child) is Branch and child.rebuilt for child in children
            )


class Tree:
    """A value taken apart.

    Args:
        value: anything.
        kind_of: tells what a value is: an array, a container, or something else.
        options: say whether Python's numbers and objects that could become arrays count as arrays. None:
            neither do, nor do deferred values, and nothing is refused.
        whole: whether it is the whole value, or stands in a place of another one.

    Attributes:
        root: a `Leaf`, a `Branch`, or the value itself if it holds no array.
        arrays: the arrays in order.
        kinds: the kind of each array.
        settled: whether every kind stays the same, so that what follows from it may be cached.

    Raises:
        StructureError: the value contains itself or is too deep, or a container cannot be read.
        NotAnArrayError: an object that could become an array is the whole value, or the options refuse it.
    """

    def __init__(
        self,
        value: Any,
        kind_of: Callable[[Any], Kind],
        options: Options | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self.arrays: list[Any] = []
        self.kinds: list[Kind] = []
        self.settled = True
        self._kind_of = kind_of
        self._options = options
        self._scalars = options is not None and options.scalars == "convert"
        self._numbers = 0
        self._seen: dict[int, Any] = {}
        self._trail: list[_Step] = []
        try:
            self.root = self._node(value, 0 if whole else 1)
        except RecursionError as error:
            self._too_deep(error)

    def _node(self, value: Any, depth: int) -> Any:
        kind = self._kind_of(value)
        what = kind.what
        if what == "other" or what == "source":
            self.settled = self.settled and kind.settled
            found = self._readable(value, kind, whole=depth == 0)
            if found is None:
                return value
            kind = found
        if what == "container" or (what == "objects" and holds_objects(value)):
            return self._branch(value, kind.container, depth)
        if what == "number":
            if not self._scalars:
                return value
            self._numbers += 1
        elif what == "deferred" and self._options is None:
            return value
        self.arrays.append(value)
        self.kinds.append(kind)
        return Leaf(len(self.arrays) - 1)

    def _readable(self, value: Any, kind: Kind, *, whole: bool) -> Kind | None:
        """Return how an object that is no array is read as one, None if it stays as it is."""
        options = self._options
        if options is None:
            return None
        if kind.what == "source":
            source: Any = kind.source
            if whole or options.unknown == "convert":
                return kind
            if options.sparse is not None:
                self.settled = False  # the next one of its class may be sparse, or not
                if ask_backend(source, "is_sparse", value):
                    return kind
            if options.unknown == "keep":
                return None
        elif not whole and options.unknown == "keep":
            return None
        elif not is_foreign(value):
            if has_own_attributes(value):  # the next one of its class may be foreign
                self.settled = False
            if whole and options.unknown == "raise" and not is_plain(value):
                raise refuse_object(value)
            return None
        elif options.unknown == "convert":
            return FOREIGN
        known = kind.source is not None
        raise refuse_foreign(value, _path(self._trail), known=known)

    def _branch(self, value: Any, container: Any, depth: int) -> Branch:
        seen = self._seen.get(id(value))
        if seen is _OPEN:
            raise StructureError(
                f"the {type(value).__name__} contains itself",
                remedy="Remove the cycle: a tree cannot contain itself.",
                path=_path(self._trail),
            )
        if seen is not None:
            return seen  # type: ignore[no-any-return]
        if depth >= MAX_DEPTH:
            self._too_deep(None)
        self._seen[id(value)] = _OPEN
        arrays, numbers = len(self.arrays), self._numbers
        children = self._nodes(value, container, self._children(value, container), depth + 1)
        found = len(self.arrays) - arrays
        parts = [child for child in children if type(child) is Branch]  # maybe seen before
        branch = Branch(
            value,
            container,
            children,
            leaves=found > 0 or any(part.leaves for part in parts),
            arrays=found > self._numbers - numbers or any(part.arrays for part in parts),
        )
        self._seen[id(value)] = branch
        return branch

    def _children(self, value: Any, container: Container) -> Sequence[Any]:
        try:
            inside = container.children(value)
            return inside if type(inside) is list else list(inside)
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise unreadable(value, container, error, _path(self._trail)) from error

    def _nodes(
        self, value: Any, container: Container, inside: Sequence[Any], depth: int
    ) -> list[Any]:
        nodes = []
        trail = self._trail
        for index, child in enumerate(inside):
            trail.append((container, value, index))
            nodes.append(self._node(child, depth))
            trail.pop()
        return nodes

    def _too_deep(self, error: BaseException | None) -> NoReturn:
        raise StructureError(
            "the tree is nested too deeply",
            remedy="Flatten it, or convert its parts one by one.",
            path=_path(self._trail),
        ) from error

    def build(self, results: list[Any]) -> Any:
        """Put the value together, with `results` in place of its arrays."""
        try:
            return self._build(self.root, results)
        except RecursionError as error:
            self._too_deep(error)

    def _build(self, node: Any, results: list[Any]) -> Any:
        if type(node) is Leaf:
            return results[node.index]
        if type(node) is not Branch:
            return node
        if not node.rebuilt:
            return node.value
        if node.built is _OPEN:
            children = []
            for index, child in enumerate(node.children):
                self._trail.append((node.container, node.value, index))
                children.append(self._build(child, results))
                self._trail.pop()
            node.built = self._rebuild(node, children)
        return node.built

    def _rebuild(self, node: Branch, children: list[Any]) -> Any:
        try:
            built = node.container.rebuild(node.value, children)
            if built is None or built is NotImplemented:
                raise TypeError(f"rebuild() returned {built}")
            return built
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            if not node.arrays:  # a torch.Size, say, whose numbers cannot be arrays
                return node.value
            if isinstance(error, ConversionError):
                if self._options is not None and self._options.unsupported == "keep":
                    return node.value
                error.locate(path=_path(self._trail))
                raise
            raise StructureError(
                f"a {type(node.value).__name__} could not be rebuilt with its converted arrays by the "
                f"container {type(node.container).__name__} ({describe_error(error)})",
                remedy="Register a Container for the class.",
                path=_path(self._trail),
            ) from error

    def path_of(self, index: int) -> str:
        """Return the place of an array in the tree, as Python would write it; "" at the top."""
        seen: set[int] = set()
        waiting: list[tuple[Any, _Trail]] = [(self.root, None)]
        while waiting:
            node, trail = waiting.pop()
            if type(node) is Leaf and node.index == index:
                steps: list[_Step] = []
                while trail is not None:
                    step, trail = trail
                    steps.append(step)
                return _path(steps[::-1])
            if type(node) is Branch and id(node) not in seen:
                seen.add(id(node))
                for place in range(len(node.children) - 1, -1, -1):
                    step = (node.container, node.value, place)
                    waiting.append((node.children[place], (step, trail)))
        return ""


_Step = tuple[Container, Any, int]
_Trail = tuple[_Step, Any] | None


def unreadable(value: Any, container: Container, error: Exception, path: str) -> StructureError:
    """Return the error for a container whose children or steps cannot be read."""
    return StructureError(
        f"a {type(value).__name__} could not be read by the container {type(container).__name__} "
        f"({describe_error(error)})",
        remedy="Fix what its attributes or keys raise, or register a Container for the class.",
        path=path,
    )


def holds_objects(value: Any) -> bool:
    """Tell whether a NumPy array is one of Python objects, to be searched. A masked one is not."""
    import numpy

    if type(value) is numpy.ndarray:
        return bool(value.dtype.kind == "O")
    if numpy.ndarray.dtype.__get__(value).kind != "O":  # a subclass may have another `dtype`
        return False
    return not (isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.is_masked(value)))


def _path(steps: list[_Step], most: int = 8) -> str:
    """Write a path as Python would, without the middle of a long one."""
    if len(steps) > 2 * most:
        return f"{_path(steps[:most])} ... {_path(steps[-most:])}"
    text = ""
    for container, value, index in steps:
        try:
            text += str(container.steps(value)[index])
        except Exception:
            text += f"[{index}]"
    return text
