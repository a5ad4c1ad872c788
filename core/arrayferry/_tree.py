"""Trees: taking a value apart into its arrays, and putting it together around others.

What was one container in two places stays one. A cycle, and a depth that the interpreter cannot
follow, raise `StructureError`. The value itself is never altered.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ._container import Container
from ._errors import ConversionError, StructureError
from ._registry import Registry

__all__ = ["Branch", "Leaf", "Tree", "first_array", "say"]

DEEPEST = 5_000
"""Levels that are followed at most, however high the interpreter's own limit was set."""

_OPEN: Any = object()


class Leaf:
    """An array in a tree: which of its arrays, counted in order."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Branch:
    """A container in a tree, with what stands in the places of its children.

    Attributes:
        rebuilt: whether it is made anew, or comes back as it is.
        arrays: whether there is an array in it, other than one made of a Python number.
    """

    __slots__ = ("arrays", "built", "children", "container", "rebuilt", "value")

    def __init__(
        self, value: Any, container: Container, children: list[Any], rebuilt: bool, arrays: bool
    ) -> None:
        self.value = value
        self.container = container
        self.children = children
        self.rebuilt = rebuilt
        self.arrays = arrays
        self.built: Any = _OPEN


class Tree:
    """A value taken apart.

    Args:
        value: anything.
        registry: tells arrays and containers from other values.
        scalars: whether Python's numbers count as arrays.

    Attributes:
        root: a `Leaf`, a `Branch`, or the value itself if it holds no array.
        arrays: the arrays in order.
        backends: the backend of each, None for a scalar.

    Raises:
        StructureError: it contains itself, is too deep, or a container could not be looked into.
    """

    def __init__(self, value: Any, registry: Registry, *, scalars: bool = False) -> None:
        self.arrays: list[Any] = []
        self.backends: list[Any] = []
        self._registry = registry
        self._scalars = scalars
        self._numbers = 0
        self._seen: dict[int, Any] = {}
        self._trail: list[_Step] = []
        try:
            self.root = self._take_apart(value, 0)
        except RecursionError as error:
            self._too_deep(error)

    def _take_apart(self, value: Any, depth: int) -> Any:
        kind, by = self._registry.kind(value)
        if kind == "other":
            return value
        if kind == "array":
            return self._leaf(value, by)
        if kind == "number":
            if not self._scalars:
                return value
            self._numbers += 1
            return self._leaf(value, None)
        if kind == "scalar":
            return self._leaf(value, None)
        if kind == "objects":
            by, container = by
            if not _holds_objects(value):
                return self._leaf(value, by)
        else:
            container = by
        seen = self._seen.get(id(value))
        if seen is not None:
            if seen is _OPEN:
                raise StructureError(
                    f"the {type(value).__name__} contains itself",
                    remedy="Break the cycle; a tree cannot contain itself.",
                    path=_path(self._trail),
                )
            return seen
        if depth >= DEEPEST:
            self._too_deep(None)
        self._seen[id(value)] = _OPEN
        try:
            inside = container.children(value)
        except RecursionError:
            raise
        except Exception as error:
            raise StructureError(
                f"a {type(value).__name__} could not be looked into ({say(error)})",
                remedy="Mend what its attributes or keys raise, or register a Container for the class.",
                path=_path(self._trail),
            ) from error
        before, numbers = len(self.arrays), self._numbers
        trail = self._trail
        children = []
        rebuilt, arrays = container.transparent, False
        for index, child in enumerate(inside):
            trail.append((container, value, index))
            node = self._take_apart(child, depth + 1)
            trail.pop()
            if type(node) is Branch:
                rebuilt = rebuilt or node.rebuilt
                arrays = arrays or node.arrays
            children.append(node)
        found = len(self.arrays) - before
        branch = Branch(
            value,
            container,
            children,
            rebuilt or found > 0,
            arrays or found > self._numbers - numbers,
        )
        self._seen[id(value)] = branch
        return branch

    def _leaf(self, value: Any, backend: Any) -> Leaf:
        self.arrays.append(value)
        self.backends.append(backend)
        return Leaf(len(self.arrays) - 1)

    def _too_deep(self, error: BaseException | None) -> NoReturn:
        raise StructureError(
            "the tree is nested too deeply to be followed",
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
        if node.built is not _OPEN:
            return node.built
        children = []
        for index, child in enumerate(node.children):
            self._trail.append((node.container, node.value, index))
            children.append(self._build(child, results))
            self._trail.pop()
        try:
            node.built = node.container.rebuild(node.value, children)
        except RecursionError:
            raise
        except Exception as error:
            if not node.arrays:  # a torch.Size, say, whose numbers cannot be arrays
                node.built = node.value
            elif isinstance(error, ConversionError):
                error.locate(path=_path(self._trail))
                raise
            else:
                raise StructureError(
                    f"a {type(node.value).__name__} could not be rebuilt around its converted "
                    f"arrays ({say(error)})",
                    remedy="Register a Container for the class.",
                    path=_path(self._trail),
                ) from error
        return node.built

    def path_of(self, index: int) -> str:
        """Say where in the tree an array stands, as Python would write it; "" for the top."""
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


def _holds_objects(value: Any) -> bool:
    """Whether a NumPy array is one of Python objects, to look inside. One with masks is not."""
    import numpy

    if numpy.ndarray.dtype.__get__(value).kind != "O":
        return False
    return not (isinstance(value, numpy.ma.MaskedArray) and bool(numpy.ma.is_masked(value)))


def say(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _path(steps: list[_Step], most: int = 8) -> str:
    """Write a path as Python would, the middle of a long one left out."""
    if len(steps) > 2 * most:
        return f"{_path(steps[:most])} ... {_path(steps[-most:])}"
    text = ""
    for container, value, index in steps:
        try:
            text += str(container.steps(value)[index])
        except Exception:
            text += f"[{index}]"
    return text


def first_array(value: Any, registry: Registry) -> tuple[Any, Any]:
    """Give the first array of a tree and its backend, (None, None) if it holds none."""
    tree = Tree(value, registry)
    if not tree.arrays:
        return None, None
    return tree.arrays[0], tree.backends[0] or registry.backend("numpy")  # a scalar is NumPy's
