"""Trees: a value is flattened into its arrays, and rebuilt with other arrays.

No function is recursive, so even a thread with a small stack can convert a deep tree. A cycle or more than `MAX_DEPTH`
levels raise `StructureError`. The value itself is never changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from arrayferry._errors import StructureError, describe_error
from arrayferry._options import Options
from arrayferry._plugin.call import ask_backend, overrides
from arrayferry._plugin.origin import Source
from arrayferry._types import AnyTree

from .kind import Kind
from .nodes import Branch, Leaf, Nodes, too_deep, written_path
from .state import class_attribute
from .values import (
    UNKNOWN,
    has_own_attributes,
    hides_items,
    is_plain,
    is_proxy,
    may_become_array,
    refuse_object,
    refuse_unknown,
    stands_for_arrays,
    warn_of_unconverted,
)

MAX_DEPTH = 5_000 if sys.version_info < (3, 13) else 1_000
"""The maximum depth of a tree. Without a limit, a value that creates its children on demand could be endless.

Python 3.13 and newer versions free nested objects recursively, so their limit is lower. With more levels, freeing the
result in a thread with a small stack would end the process.
"""


_OPEN: Any = object()


class Tree(Nodes):
    """A value, flattened into its arrays and containers.

    Args:
        value: anything.
        kind_of: a function that returns the `Kind` of a value.
        options: the options of a conversion, which decide whether Python numbers and objects that could become arrays
            count as arrays. If None, they do not, unless `everything` is True, and no object raises an error.
        whole: whether `value` is the whole value of a conversion, and not a part of it.
        places: whether a container that occurs several times has its arrays listed each time.
        everything: whether all values but containers count as arrays. This has no effect if there are options.

    Attributes:
        arrays: the arrays in order.
        kinds: the kind of each array.
        cacheable: whether all values of the same types are converted in the same way, so that a plan may be compiled.

    Raises:
        StructureError: the value contains itself or is too deep, or a container cannot be read.
        NotAnArrayError: the options refuse an object, or the whole value cannot be converted.
    """

    def __init__(
        self,
        value: AnyTree,
        kind_of: Callable[[Any], Kind],
        options: Options | None = None,
        *,
        whole: bool = True,
        places: bool = False,
        everything: bool = False,
    ) -> None:
        super().__init__(None, [], keeps=options is not None and options.unsupported == "keep")
        self.arrays: list[Any] = []
        self.kinds: list[Kind] = []
        self.cacheable: bool = True
        self._kind_of = kind_of
        self._options = options
        self._whole = whole
        self._places = places
        self._everything = everything
        self._seen: dict[int, Any] = {}
        # the containers that are being read, and the values in each
        self._open: list[tuple[Branch, list[Any]]] = []
        try:
            root = self._walk(value)
        except RecursionError as error:
            # the code of a container raised this error, or the stack was almost full before this call
            raise too_deep(self._path(), error) from error
        self._root = None if type(root) is Branch else root
        if False in [branch.rebuilt for branch in self.branches]:
            self._keep_inside()

    def _keep_inside(self) -> None:
        """Set `rebuilt` to False for containers that occur only inside containers that are returned unchanged."""
        needed = {self.branches[-1].index}
        for branch in reversed(self.branches):
            branch.rebuilt = branch.rebuilt and branch.index in needed
            if branch.rebuilt:
                needed.update(node.index for node in branch.children if type(node) is Branch)

    def _walk(self, value: AnyTree) -> Any:
        """Return the node of a value, with the nodes of all values inside it."""
        node = self._node(value)
        while self._open:
            branch, inner_values = self._open[-1]
            children = branch.children
            while len(children) < len(inner_values):
                node = self._node(inner_values[len(children)])
                if node is _OPEN:  # a container was opened: read its children first
                    break
                children.append(node)
            else:
                self._close(branch)
                node = branch
                if self._open:
                    self._open[-1][0].children.append(branch)
        return node

    def _node(self, value: AnyTree) -> Any:
        kind = self._kind_of(value)
        if kind.category != "array":
            if kind.searches(value):
                return self._start(value, kind.container)
            array_kind = kind if kind.is_array else self._read_as(value, kind)
            if array_kind is None:
                return value
            kind = array_kind
        self.arrays.append(value)
        self.kinds.append(kind)
        return Leaf(len(self.arrays) - 1)

    def _read_as(self, value: AnyTree, kind: Kind) -> Kind | None:
        """Return the kind for converting an object that is not an array, or None if the object stays unchanged."""
        options = self._options
        if options is None:
            return kind if self._everything else None
        if kind.category == "number":
            return kind if options.scalars == "convert" else None
        self.cacheable = self.cacheable and kind.cacheable
        is_whole = self._whole and not self._open
        if kind.source is not None:
            if is_whole or options.unknown == "convert":
                return kind
            if overrides(kind.source, Source.is_sparse):
                self.cacheable = False  # another object of this class may be sparse
                if ask_backend(kind.source, "is_sparse", value):
                    return kind
            if options.unknown == "keep":
                warn_of_unconverted(value, self._path)
                return None
        elif not is_whole and options.unknown == "keep":
            return None
        elif options.unknown == "raise" and is_proxy(value) and stands_for_arrays(value):
            pass
        elif not may_become_array(value):
            # not cacheable, since another object of this class may become an array
            if is_proxy(value) or has_own_attributes(value):
                self.cacheable = False
            if is_whole and options.unknown == "raise" and not is_plain(value):
                raise refuse_object(value)
            return None
        elif options.unknown == "convert":
            return UNKNOWN
        raise refuse_unknown(value, self._path(), has_source=kind.source is not None)

    def _start(self, value: AnyTree, container: Any) -> Any:
        """Start reading a container and return `_OPEN`. If the container was read before, return its node."""
        seen_node = self._seen.get(id(value))
        if seen_node is _OPEN:
            raise StructureError(
                f"the {type(value).__name__} contains itself",
                remedy="Remove the cycle: a tree cannot contain itself.",
                path=self._path(),
            )
        if seen_node is not None:
            seen_node.repeated = True
            if not self._places:
                return seen_node
        if len(self._open) >= MAX_DEPTH:
            raise too_deep(self._path())
        self._seen[id(value)] = _OPEN
        try:
            inner_values = list(container.children(value))
            steps = list(map(str, container.steps(value))) if self._places else []
            if self._places and len(steps) != len(inner_values):
                raise ValueError(
                    f"steps() returned {len(steps)} steps for {len(inner_values)} children, but one for each is needed"
                )
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise StructureError(
                f"a {type(value).__name__} could not be read by the container {type(container).__name__} "
                f"({describe_error(error)})",
                remedy="Correct the attributes or keys that raise errors, or register a Container for the class.",
                path=self._path(),
            ) from error
        if self._options is not None and self._options.unknown == "raise":
            methods = [class_attribute(type(value), name) for name in ("__iter__", "__len__")]
            if isinstance(value, (dict, list, tuple)) and any(
                type(method) is FunctionType for method in methods
            ):
                self.cacheable = False  # another object of this class may hide items
                if hides_items(value, len(inner_values)):
                    raise refuse_unknown(value, self._path())
        branch = Branch(value, container, steps, repeated=seen_node is not None)
        self._open.append((branch, inner_values))
        return _OPEN

    def _close(self, branch: Branch) -> None:
        """Finish the branch of a container after reading all of its children."""
        any_rebuilt = False
        for node in branch.children:
            if type(node) is Leaf:
                branch.leaves = True
                branch.arrays = branch.arrays or self.kinds[node.index].category != "number"
            elif type(node) is Branch:
                branch.leaves = branch.leaves or node.leaves
                branch.arrays = branch.arrays or node.arrays
                any_rebuilt = any_rebuilt or node.rebuilt
        # a tuple cannot be modified, so it is rebuilt only if a container in it is rebuilt
        must_copy = branch.container.transparent and (
            type(branch.value) is not tuple or any_rebuilt
        )
        branch.rebuilt = branch.leaves or must_copy
        branch.index = len(self.branches)
        self.branches.append(branch)
        self._seen[id(branch.value)] = branch
        self._open.pop()

    def _path(self) -> str:
        """Return the path of the value that is being read."""
        return written_path([(branch, len(branch.children)) for branch, _ in self._open])
