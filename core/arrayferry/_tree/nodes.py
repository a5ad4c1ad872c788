"""The nodes of a flattened tree, and how to rebuild the tree with other arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import Any

from arrayferry._errors import ConversionError, StructureError, describe_error
from arrayferry._plugin.container import Container
from arrayferry._types import AnyTree


class Leaf:
    """An array in a tree.

    Attributes:
        index: the index of the array among the arrays of the tree.
    """

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


@dataclass(eq=False, repr=False, slots=True)
class Branch:
    """A container in a tree, and a node for each of its children.

    Attributes:
        value: the container.
        container: the `Container` that reads and rebuilds `value`.
        children: for each child, a `Leaf`, a `Branch`, or the child itself if it is neither an array nor a container.
        steps: for each child, the Python code that selects it, such as `".x"`. Empty for a `Tree` without `places`.
        index: the index of the branch among the branches of the tree.
        leaves: whether the container has a leaf, at any depth.
        arrays: whether the container has a leaf that is not a Python number, at any depth.
        rebuilt: whether a new container is created. If False, the result contains the container itself.
        repeated: whether the container occurs several times in the tree.
    """

    value: Any
    container: Container
    steps: Sequence[str] = ()
    children: list[Any] = field(default_factory=list)
    index: int = -1
    leaves: bool = False
    arrays: bool = False
    rebuilt: bool = False
    repeated: bool = False


class Nodes:
    """The containers of a tree, and the places of its leaves.

    Args:
        root: a `Leaf`, a `Branch`, or the value itself if it is neither an array nor a container.
        branches: the containers, each after the containers in it.
        keeps: whether a container whose `rebuild` raises a `ConversionError` is returned unchanged. After a
            `StructureError`, the container is returned only if nothing in it was converted.

    Attributes:
        branches: the containers.
    """

    __slots__ = ("_keeps", "_root", "branches")

    def __init__(self, root: Any, branches: list[Branch], *, keeps: bool = False) -> None:
        # only `branches` refers to containers, so that Python frees them one by one, not recursively
        self._root = None if type(root) is Branch else root
        self.branches: list[Branch] = branches
        self._keeps = keeps

    @property
    def root(self) -> Any:
        """A `Leaf`, a `Branch`, or the value itself if it is neither an array nor a container."""
        return self.branches[-1] if self.branches else self._root

    def build(self, results: Sequence[Any]) -> Any:
        """Rebuild the value, with `results` in place of its arrays."""
        if not self.branches:
            root = self._root
            return results[root.index] if type(root) is Leaf else root
        built: list[Any] = []
        # the new containers of repeated containers, by the ids of old container and new children
        built_by_key: dict[tuple[int, ...], Any] = {}
        for branch in self.branches:
            if not branch.rebuilt:
                built.append(branch.value)
                continue
            children = [
                results[node.index]
                if type(node) is Leaf
                else built[node.index]
                if type(node) is Branch
                else node
                for node in branch.children
            ]
            if branch.repeated:
                key = (id(branch.value), *map(id, children))
                if key not in built_by_key:
                    built_by_key[key] = self._rebuild(branch, children)
                built.append(built_by_key[key])
            else:
                built.append(self._rebuild(branch, children))
        return built[-1]

    def _rebuild(self, branch: Branch, children: list[Any]) -> Any:
        value, container = branch.value, branch.container
        try:
            return rebuilt(container, value, children)
        except MemoryError:
            raise
        except RecursionError as error:
            raise too_deep(self._path_to(lambda node: node is branch), error) from error
        except Exception as error:
            # return a container of numbers, such as torch.Size, unchanged if it refuses arrays
            if not branch.arrays:
                return value
            if isinstance(error, ConversionError):
                children_changed = any(map(is_not, children, container.children(value)))
                if self._keeps and not (children_changed and isinstance(error, StructureError)):
                    return value
                path = self._path_to(lambda node: node is branch)
                raise error.locate(path=path) from error.__cause__
            raise StructureError(
                f"a {type(value).__name__} could not be rebuilt with its converted arrays by the "
                f"container {type(container).__name__} ({describe_error(error)})",
                remedy="Correct the container's rebuild(), or register another Container for the class.",
                path=self._path_to(lambda node: node is branch),
            ) from error

    def path_of(self, index: int) -> str:
        """Return the path of an array in the tree, as Python would write it, or "" if the array is the tree."""
        return self._path_to(lambda node: type(node) is Leaf and node.index == index)

    def _path_to(self, is_it: Callable[[Any], bool]) -> str:
        """Return the first path to a node, or "" for the root."""
        steps: list[tuple[Branch, int]] = []
        seen_ids: set[int] = set()
        pending: list[tuple[int, Branch, int]] = []
        node, depth = self.root, 0
        while not is_it(node):
            if type(node) is Branch and id(node) not in seen_ids:
                seen_ids.add(id(node))
                pending += [(depth, node, index) for index in reversed(range(len(node.children)))]
            if not pending:
                return ""
            depth, parent, index = pending.pop()
            steps[depth:] = [(parent, index)]
            node, depth = parent.children[index], depth + 1
        return written_path(steps)


def rebuilt(container: Container, value: AnyTree, children: list[Any]) -> Any:
    """Return a rebuilt container. Raise a `TypeError` if `rebuild` returns None or `NotImplemented`."""
    built = container.rebuild(value, children)
    if built is None or built is NotImplemented:
        raise TypeError(f"rebuild() returned {built}")
    return built


def too_deep(path: str, error: RecursionError | None = None) -> StructureError:
    """Return the error for a tree of too many levels, or for the `RecursionError` that the tree caused."""
    if error is None:
        reason, remedy = "", "Flatten it, or convert its parts one by one."
    else:
        reason = f", or the code that reads or rebuilds a part of it recurses without end ({describe_error(error)})"
        remedy = (
            "If that code is at fault, the cause shows where. Otherwise, flatten the tree, or convert its parts one "
            "by one."
        )
    return StructureError(f"the tree is nested too deeply{reason}", remedy=remedy, path=path)


def written_path(steps: list[tuple[Branch, int]], most: int = 8) -> str:
    """Return a path as Python would write it. The middle of a long path is left out."""
    if len(steps) > 2 * most:
        return f"{written_path(steps[:most])} ... {written_path(steps[-most:])}"
    text = ""
    for branch, index in steps:
        try:
            text += str(branch.container.steps(branch.value)[index])
        except Exception:
            text += f"[{index}]"
    return text
