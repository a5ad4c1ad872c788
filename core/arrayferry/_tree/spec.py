"""Layouts: the structure of a tree, without its leaves. Unlike a `Tree`, a layout can be compared and hashed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from arrayferry._errors import StructureError
from arrayferry._plugin.call import overrides
from arrayferry._plugin.container import Container
from arrayferry._types import AnyTree
from arrayferry._utilities.text import never_raises, short_repr

from .keys import exact_key
from .kind import Kind
from .nodes import Branch, Leaf, Nodes
from .state import has_attributes
from .tree import Tree

MAX_TEXT = 200
"""The maximum number of characters in the `repr` of a layout."""


class TreeSpec:
    """The structure of a tree, without its leaves. Layouts can be hashed and compared.

    Two layouts are equal if they rebuild equal trees from the same leaves: containers of the same types, with the same
    keys, attributes and settings, and other values that are equal and of the same types.

    Attributes:
        paths: for each leaf, the Python code that selects it, such as `"['a'][0]"`, or "" for a tree that is one leaf.
    """

    __slots__ = ("_flat", "_hash", "_key", "_nodes", "paths")

    def __init__(self, nodes: Nodes, paths: list[str]) -> None:
        self.paths: list[str] = paths
        self._nodes = nodes
        root = nodes.root
        self._key = (*map(_branch_key, nodes.branches), _code(root))
        self._hash: int | None = None
        self._flat = _flat_type(root)

    @property
    def has_numbers(self) -> bool:
        """Whether the layout contains Python numbers other than bools."""
        branches = self._nodes.branches
        nodes = [self._nodes.root, *(child for branch in branches for child in branch.children)]
        return any(type(node) in (int, float, complex) for node in nodes)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Rebuild the tree with new leaves, one for each path in `paths`.

        A container that occurred in several places becomes one object again if its children are the same in each place.

        Raises:
            StructureError: there are too many or too few leaves, or a container cannot be rebuilt with them.
        """
        leaves = leaves if type(leaves) is list else list(leaves)
        if len(leaves) != len(self.paths):
            raise StructureError(
                f"{len(leaves)} leaves were given for a layout of {len(self.paths)}",
                remedy="Pass one leaf for each path in the `paths` of the layout.",
            )
        if self._flat is not None:
            return tuple.__new__(self._flat, leaves)
        return self._nodes.build(leaves)

    def is_of(self, cls: type) -> bool:
        """Return whether the tree is a named tuple of the class `cls` whose elements are all leaves."""
        return self._flat is cls

    def order_in(self, other: TreeSpec) -> list[int] | None:
        """Map the leaves of this layout to those of another layout, which may differ only in the order of dict keys.

        Returns:
            For each leaf of this layout, the index of the same leaf in `other`. None if the layouts differ in more than
            the order of keys.
        """
        if self == other:
            return list(range(len(self.paths)))
        order: list[int] = []
        pending = [(self._nodes.root, other._nodes.root)]
        while pending:
            my_node, its_node = pending.pop()
            if type(my_node) is Leaf and type(its_node) is Leaf:
                order.append(its_node.index)
            elif (pairs := _match(my_node, its_node)) is not None:
                pending += pairs[::-1]
            else:
                return None
        return order

    def __reduce__(self) -> tuple[Any, ...]:
        return TreeSpec, (self._nodes, self.paths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return self is other or self._key == other._key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self._key)
        return self._hash

    @never_raises
    def __repr__(self) -> str:
        text = ""
        for fragment in _written(self._nodes.root):
            text += fragment
            if len(text) > MAX_TEXT:
                text += "..."
                break
        return f"<TreeSpec {text}>"


def flatten(
    value: AnyTree, kind_of: Callable[[Any], Kind], *, everything: bool = False, prefix: str = ""
) -> tuple[list[Any], TreeSpec]:
    """Flatten a tree into its leaves, in order, and its layout.

    Args:
        value: an array or a tree.
        kind_of: a function that returns the `Kind` of a value.
        everything: whether values that are neither arrays nor containers are leaves too. If False, such values are
            stored in the layout.
        prefix: the start of each path.

    Raises:
        StructureError: the tree contains itself, or is too deep.
    """
    if kind_of(value).category in ("array", "scalar"):
        return [value], TreeSpec(_LEAF, [prefix])
    try:
        tree = Tree(value, kind_of, places=True, everything=everything)
    except StructureError as error:
        error.path = prefix + error.path
        raise
    templates: dict[int, Any] = {}  # a container in several places has one template
    for branch in tree.branches:
        if branch.rebuilt:
            branch_id = id(branch.value)
            if branch_id not in templates:
                templates[branch_id] = _template_of(branch)
            branch.value = templates[branch_id]
    root = tree.root
    return tree.arrays, TreeSpec(Nodes(root, tree.branches), _paths(root, prefix))


def _paths(root: Any, prefix: str) -> list[str]:
    """Return the path of each leaf."""
    paths: list[str] = []
    pending = [(root, prefix)]
    while pending:
        node, path = pending.pop()
        if type(node) is Leaf:
            paths.append(path)
        elif type(node) is Branch and node.leaves:
            steps = [path + step for step in node.steps]
            pending += list(zip(node.children, steps, strict=True))[::-1]
    return paths


_LEAF = Nodes(Leaf(0), [])


class _Placeholder:
    """A child of a template. Placeholders are different objects, but all are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Placeholder)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "array"


def _template_of(branch: Branch) -> Any:
    """Return a copy of a container with placeholders as children, so that a layout keeps no array alive.

    If the container cannot be rebuilt with placeholders, return the container itself.
    """
    value = branch.value
    try:
        template = branch.container.rebuild(value, [_Placeholder() for _ in branch.children])
    except Exception:  # the container accepts only arrays, and no placeholders
        return value
    return template if type(template) is type(value) else value


def _branch_key(branch: Branch) -> Any:
    """Return a key for a container: its type, its static key and keys for its children."""
    if not _has_parts(branch):
        return None  # the key of the parent has a key for this container, by `_code`
    return type(branch.value), _static_key(branch), *map(_code, branch.children)


def _code(node: Any) -> Any:
    if type(node) is Leaf:
        return "*"
    if type(node) is not Branch:
        return exact_key(node)
    return node.index if _has_parts(node) else exact_key(node.value)


def _has_parts(branch: Branch) -> bool:
    """Return whether the key of a container consists of its static key and keys for its children.

    A container that is not rebuilt may be an object that is compared by identity, but can be modified. Its static key
    and its children show the modification.
    """
    container = branch.container
    return (
        branch.rebuilt
        or container.transparent
        or _is_plain_tuple(type(branch.value))
        or overrides(container, Container.static)
    )


def _static_key(branch: Branch) -> Any:
    """Return the key of a container without its children."""
    value, cls = branch.value, type(branch.value)
    if cls is dict:
        return tuple(value) if {str}.issuperset(map(type, value)) else tuple(map(exact_key, value))
    if cls is list or cls is tuple or _is_plain_tuple(cls):
        return None
    static_data = branch.container.static(value)
    if static_data is NotImplemented:
        return exact_key(value if branch.rebuilt else _template_of(branch))
    return exact_key(static_data)


def _is_plain_tuple(cls: type) -> bool:
    """Return whether objects of a class, such as a named tuple, are tuples without data besides their elements."""
    return (
        issubclass(cls, tuple) and not has_attributes(cls) and not hasattr(cls, "n_sequence_fields")
    )


def _flat_type(node: Any) -> Any:
    """Return the class of a named tuple whose elements are all leaves, else None. Such tuples are rebuilt faster."""
    cls = type(node.value) if type(node) is Branch else None
    if cls is None or not _is_plain_tuple(cls):
        return None
    is_plain = cls.__len__ is tuple.__len__ and cls.__iter__ is tuple.__iter__
    only_leaves = all(type(child) is Leaf for child in node.children)
    has_names = len(getattr(cls, "_fields", ())) == len(node.children)
    return cls if is_plain and only_leaves and has_names else None


def _match(mine: Any, its: Any) -> list[tuple[Any, Any]] | None:
    """Pair the children of two nodes, those of dicts by key. Return None if more than the order of keys differs."""
    are_branches = type(mine) is Branch and type(its) is Branch
    if not (are_branches and _has_parts(mine) and _has_parts(its)):
        return [] if _code(mine) == _code(its) else None
    children = its.children
    if type(mine.value) is not type(its.value) or len(mine.children) != len(children):
        return None
    if not isinstance(mine.value, dict):
        if _static_key(mine) != _static_key(its):
            return None
    else:
        child_by_key = dict(zip(map(exact_key, dict.keys(its.value)), children, strict=True))
        keys = [exact_key(key) for key in dict.keys(mine.value)]
        if child_by_key.keys() != set(keys) or _besides_items(mine) != _besides_items(its):
            return None
        children = [child_by_key[child_key] for child_key in keys]
    return list(zip(mine.children, children, strict=True))


def _besides_items(branch: Branch) -> Any:
    """Return a key for the attributes and the default factory of a dict."""
    return exact_key(branch.value.__reduce_ex__(2)[:3])


def _written(node: Any) -> Iterator[str]:
    """Yield the parts of a readable text for a tree."""
    if type(node) is Leaf:
        yield "array"
    elif type(node) is not Branch or not node.rebuilt:
        yield short_repr(node.value if type(node) is Branch else node)
    else:
        yield f"{type(node.value).__name__}("
        for index, (step, child) in enumerate(zip(node.steps, node.children, strict=True)):
            yield f"{', ' if index else ''}{step[:MAX_TEXT]}: "
            yield from _written(child)
        yield ")"
