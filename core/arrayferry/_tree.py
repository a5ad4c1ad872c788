"""Trees: taking a value apart into its arrays, and putting it together around others.

What was one container in two places stays one. A cycle, and a depth that the interpreter cannot
follow, raise `StructureError`. The value itself is never altered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ._container import Container
from ._errors import ArrayFerryError, StructureError
from ._registry import Registry

__all__ = ["Branch", "Leaf", "Tree", "first_array"]

DEEPEST = 5_000
"""Levels that are followed at most, however high the interpreter's own limit was set."""

_OPEN: Any = object()


class Leaf:
    """An array in a tree: which of its arrays, counted in order."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Branch:
    """A container in a tree, with what stands in the places of its children."""

    __slots__ = ("built", "children", "container", "rebuilt", "value")

    def __init__(
        self, value: Any, container: Container, children: list[Any], rebuilt: bool
    ) -> None:
        self.value = value
        self.container = container
        self.children = children
        self.rebuilt = rebuilt
        self.built: Any = _OPEN


class Tree:
    """A value taken apart.

    Args:
        value: anything.
        registry: tells arrays and containers from other values.
        scalars: whether Python's numbers count as arrays.

    Attributes:
        root: a `Leaf`, a `Branch`, or the value itself if it holds no array.
        arrays: the arrays in order, each with its kind.

    Raises:
        StructureError: it contains itself, is too deep, or a container could not be looked into.
    """

    def __init__(self, value: Any, registry: Registry, *, scalars: bool = False) -> None:
        self.arrays: list[Any] = []
        self.backends: list[Any] = []
        self._registry = registry
        self._scalars = scalars
        self._seen: dict[int, Any] = {}
        self._trail: list[tuple[Container, Any, int]] = []
        try:
            self.root = self._take_apart(value, 0)
        except RecursionError as error:
            self._too_deep(error)
        finally:
            self._trail = []

    def _take_apart(self, value: Any, depth: int) -> Any:
        kind, by = self._registry.kind(value)
        if kind == "other":
            return value
        if kind == "array":
            return self._leaf(value, by)
        if kind == "objects":
            backend, container = by
            if value.dtype != object:
                return self._leaf(value, backend)
            if hasattr(value, "mask"):
                return self._leaf(value, backend)
        elif kind == "scalar" or kind == "number":
            return self._leaf(value, None) if kind == "scalar" or self._scalars else value
        else:
            container = by
        seen = self._seen.get(id(value))
        if seen is not None:
            if seen is _OPEN:
                raise StructureError(
                    f"the {type(value).__name__} contains itself",
                    remedy="Break the cycle; a tree cannot contain itself.",
                    path=self._path(),
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
                f"a {type(value).__name__} could not be looked into ({type(error).__name__}: {error})",
                remedy="Mend what its attributes or keys raise, or register a Container for the class.",
                path=self._path(),
            ) from error
        before = len(self.arrays)
        trail = self._trail
        children = []
        for index, child in enumerate(inside):
            trail.append((container, value, index))
            children.append(self._take_apart(child, depth + 1))
            trail.pop()
        rebuilt = (
            container.transparent
            or len(self.arrays) > before
            or any(type(child) is Branch and child.rebuilt for child in children)
        )
        branch = Branch(value, container, children, rebuilt)
        self._seen[id(value)] = branch
        return branch

    def _leaf(self, value: Any, backend: Any) -> Leaf:
        self.arrays.append(value)
        self.backends.append(backend)
        return Leaf(len(self.arrays) - 1)

    def _too_deep(self, error: BaseException | None) -> NoReturn:
        path = self._path()
        raise StructureError(
            "the tree is nested too deeply to be followed",
            remedy="Flatten it, or convert its parts one by one.",
            path=path,
        ) from error

    def _path(self) -> str:
        steps = [_step(container, value, index) for container, value, index in _ends(self._trail)]
        if len(self._trail) > len(steps):
            steps.insert(len(steps) // 2, " ... ")
        return "".join(steps)

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
            children = [self._build(child, results) for child in node.children]
            try:
                node.built = node.container.rebuild(node.value, children)
            except (ArrayFerryError, RecursionError):
                raise
            except Exception as error:
                raise StructureError(
                    f"a {type(node.value).__name__} could not be rebuilt around its converted "
                    f"arrays ({type(error).__name__}: {error})",
                    remedy="Register a Container for the class.",
                ) from error
        return node.built

    def path_of(self, index: int) -> str:
        """Say where in the tree an array stands, as Python would write it; "" for the top."""
        for path, found in _leaves(self.root, []):
            if found == index:
                return "".join(_step(*step) for step in path)
        return ""


def _ends(trail: list[Any], most: int = 6) -> list[Any]:
    return trail if len(trail) <= 2 * most else trail[:most] + trail[-most:]


def _step(container: Container, value: Any, index: int) -> str:
    try:
        return str(container.steps(value)[index])
    except Exception:
        return f"[{index}]"


def _leaves(node: Any, path: list[Any]) -> Iterator[tuple[list[Any], int]]:
    if type(node) is Leaf:
        yield path, node.index
    elif type(node) is Branch:
        for index, child in enumerate(node.children):
            yield from _leaves(child, [*path, (node.container, node.value, index)])


def first_array(value: Any, registry: Registry) -> tuple[Any, Any]:
    """Give the first array of a tree and its backend, (None, None) if it holds none."""
    tree = Tree(value, registry)
    for array, backend in zip(tree.arrays, tree.backends, strict=True):
        if backend is not None:
            return array, backend
    return None, None
