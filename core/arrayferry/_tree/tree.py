"""Trees: a value taken apart into its arrays, and put together again around others.

Nothing here is recursive, so depth needs no stack: a tree of thousands of levels is converted in any
thread. A cycle, and more than `MAX_DEPTH` levels, raise `StructureError`. The value itself is never altered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry._errors import StructureError, describe_error
from arrayferry._options import Options
from arrayferry._plugin.call import ask_backend, overrides
from arrayferry._plugin.container import Container
from arrayferry._plugin.origin import Source

from .kind import Kind
from .nodes import Branch, Leaf, Nodes, steps_of, too_deep, written_path
from .unknown import (
    UNKNOWN,
    is_plain,
    may_become_array,
    refuse_object,
    refuse_unknown,
)
from .values import has_own_attributes

__all__ = ["Tree"]


MAX_DEPTH = 5_000 if sys.version_info < (3, 13) else 1_000
"""The most levels that are followed. A value may be endless, such as one that makes its children on demand.

From 3.13 on, Python frees nested objects recursively. With more levels than this, freeing the result in a thread
with a small stack would end the process.
"""


_OPEN: Any = object()


class _Frame:
    """A container whose children are being looked at.

    Attributes:
        branch: the container.
        inside: its children.
        numbers: how many Python numbers were leaves before it.
        path: its place, "" where paths are not asked for.
        steps: how its children are reached, where paths are asked for.
    """

    __slots__ = ("branch", "inside", "numbers", "path", "steps")

    def __init__(
        self, branch: Branch, inside: Sequence[Any], numbers: int, path: str, steps: Sequence[str]
    ) -> None:
        self.branch = branch
        self.inside = inside
        self.numbers = numbers
        self.path = path
        self.steps = steps


class Tree(Nodes):
    """A value taken apart.

    Args:
        value: anything.
        kind_of: tells what a value is: an array, a container, or something else.
        options: say whether Python's numbers and objects that could become arrays count as arrays. None:
            neither do, and nothing is refused.
        whole: whether it is the whole value, or part of another one.
        deferred: whether deferred values count as arrays where there are no options.
        everything: whether whatever is no container counts as an array.
        prefix: what the paths of leaves begin with. If it is given, leaves are listed once per place, with
            their paths. If not, what is in a container that stands in several places is listed once.

    Attributes:
        arrays: the arrays in order.
        kinds: the kind of each array.
        paths: the place of each array as Python would write it, if a prefix was given.
        settled: whether every kind stays the same, so that what follows from it may be cached.

    Raises:
        StructureError: the value contains itself or is too deep, or a container cannot be read.
        NotAnArrayError: an object that could become an array is the whole value, or the options refuse it.
    """

    __slots__ = (
        "_everything", "_frames", "_kind_of", "_numbers", "_options", "_reads_deferred", "_scalars", "_seen",
        "_whole", "arrays", "kinds", "paths", "settled",
    )  # fmt: skip

    def __init__(
        self,
        value: Any,
        kind_of: Callable[[Any], Kind],
        options: Options | None = None,
        *,
        whole: bool = True,
        deferred: bool = False,
        everything: bool = False,
        prefix: str | None = None,
    ) -> None:
        super().__init__(None, [], keeps=options is not None and options.unsupported == "keep")
        self.arrays: list[Any] = []
        self.kinds: list[Kind] = []
        self.paths: list[str] | None = None if prefix is None else []
        self.settled = True
        self._kind_of = kind_of
        self._options = options
        self._scalars = options is not None and options.scalars == "convert"
        self._reads_deferred = deferred or options is not None
        self._everything = everything
        self._whole = whole
        self._numbers = 0
        self._seen: dict[int, Any] = {}
        self._frames: list[_Frame] = []
        try:
            root = self._walk(value, prefix or "")
        except RecursionError as error:  # of a container, or since the stack was almost full before
            raise too_deep(self._path(), error) from error
        self._root = None if type(root) is Branch else root

    def _walk(self, value: Any, prefix: str) -> Any:
        """Return the node of the value, with nodes for all that is in it."""
        node = self._node(value, prefix)
        frames = self._frames
        while frames:
            frame = frames[-1]
            children, inside = frame.branch.children, frame.inside
            while len(children) < len(inside):
                index = len(children)
                path = frame.path + frame.steps[index] if frame.steps else ""
                node = self._node(inside[index], path)
                if node is _OPEN:  # it is a container, whose children come first
                    break
                children.append(node)
            else:
                node = self._close(frame)
                if frames:
                    frames[-1].branch.children.append(node)
        return node

    def _node(self, value: Any, path: str) -> Any:
        kind = self._kind_of(value)
        what = kind.what
        if what != "array":
            if (what == "other" or what == "source") and not self._everything:
                self.settled = self.settled and kind.settled
                read_as = self._readable(value, kind, whole=self._whole and not self._frames)
                if read_as is None:
                    return value
                kind = read_as
            if kind.searches(value):
                return self._open(value, kind.container, path)
            if what == "number":
                if not (self._scalars or self._everything):
                    return value
                self._numbers += 1
            elif what == "deferred" and not self._reads_deferred:
                return value
        arrays = self.arrays
        arrays.append(value)
        self.kinds.append(kind)
        if self.paths is not None:
            self.paths.append(path)
        return Leaf(len(arrays) - 1)

    def _readable(self, value: Any, kind: Kind, *, whole: bool) -> Kind | None:
        """Return how an object that is not an array is read as one, None if it stays as it is."""
        options = self._options
        if options is None:
            return None
        if kind.what == "source":
            source: Any = kind.source
            if whole or options.unknown == "convert":
                return kind
            if overrides(source, Source.is_sparse):
                self.settled = False  # the next one of its class may be sparse, or not
                if ask_backend(source, "is_sparse", value):
                    return kind
            if options.unknown == "keep":
                return None
        elif not whole and options.unknown == "keep":
            return None
        elif not may_become_array(value):
            if has_own_attributes(value):  # the next one of its class may become an array
                self.settled = False
            if whole and options.unknown == "raise" and not is_plain(value):
                raise refuse_object(value)
            return None
        elif options.unknown == "convert":
            return UNKNOWN
        known = kind.source is not None
        raise refuse_unknown(value, self._path(), known=known)

    def _open(self, value: Any, container: Any, path: str) -> Any:
        """Start with a container, and return `_OPEN`; or return its node, if it was seen before."""
        seen = self._seen.get(id(value))
        if seen is _OPEN:
            raise StructureError(
                f"the {type(value).__name__} contains itself",
                remedy="Remove the cycle: a tree cannot contain itself.",
                path=path or self._path(),
            )
        if seen is not None and self.paths is None:
            return seen
        if len(self._frames) >= MAX_DEPTH:
            raise too_deep(self._path())
        self._seen[id(value)] = _OPEN
        inside, steps = self._read(value, container, path)
        branch = Branch(value, container, len(self.arrays), seen)
        self._frames.append(_Frame(branch, inside, self._numbers, path, steps))
        return _OPEN

    def _read(
        self, value: Any, container: Container, path: str
    ) -> tuple[Sequence[Any], Sequence[str]]:
        """Return the children of a container, and how each is reached where paths are asked for."""
        try:
            inside = container.children(value)
            inside = inside if type(inside) is list else list(inside)
            return inside, () if self.paths is None else steps_of(container, value, len(inside))
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise StructureError(
                f"a {type(value).__name__} could not be read by the container {type(container).__name__} "
                f"({describe_error(error)})",
                remedy="Fix what its attributes or keys raise, or register a Container for the class.",
                path=path or self._path(),
            ) from error

    def _close(self, frame: _Frame) -> Branch:
        """End a container, all of whose children are known, and return its node."""
        branch = frame.branch
        value, children = branch.value, branch.children
        count = len(self.arrays) - branch.start
        parts = [child for child in children if type(child) is Branch]  # maybe seen before
        branch.stop = len(self.arrays)
        branch.leaves = count > 0 or any(part.leaves for part in parts)
        branch.arrays = count > self._numbers - frame.numbers or any(part.arrays for part in parts)
        branch.rebuilt = branch.leaves
        if not branch.leaves and branch.container.transparent:
            # a tuple cannot change, unless a part of it can
            branch.rebuilt = type(value) is not tuple or any(part.rebuilt for part in parts)
        branch.index = len(self.branches)
        self.branches.append(branch)
        self._seen[id(value)] = branch
        self._frames.pop()
        return branch

    def _path(self) -> str:
        """Return the place of the value that is being looked at."""
        return written_path([(f.branch, len(f.branch.children)) for f in self._frames])
