"""The structure of a value, which is all that a plan checks, and the containers that a plan writes as loops."""

from __future__ import annotations

from typing import Any

from arrayferry._tree.nodes import Branch, Leaf
from arrayferry._tree.sequences import OBJECT_ARRAY
from arrayferry._tree.tree import Tree

MANY = "..."
"""Marks a container with any number of children that are like the first."""
RUN = 16
"""A container with at least this many children of one kind is written as a loop, whatever its length."""
MAX_LEVELS = 30
"""The maximum number of levels of a structure with a plan, since Python's own parser has a limit."""


class UnplannableError(Exception):
    """A structure cannot have a plan: it is too large, too deep, or holds an array of objects."""


def structure_of(tree: Tree) -> Any:
    """Return all that a plan for this tree would check, None if it cannot have a plan.

    That is the type of a leaf; a tuple of the type of a container and the structures of its children, or the structure
    that all of them have and `MANY` if it is written as a loop; and a tuple of the type alone for any other value.
    """
    if not tree.cacheable:
        return None
    try:
        structure = _key(tree, tree.root, 0, set())
        hash(structure)  # it raises for some classes
    except Exception:
        return None
    return structure


def _key(tree: Tree, node: Any, depth: int, seen: set[int]) -> Any:
    if type(node) is Leaf:
        return type(tree.arrays[node.index])
    if type(node) is not Branch:
        return (type(node),)
    if depth > MAX_LEVELS or id(node) in seen or node.container is OBJECT_ARRAY:
        raise UnplannableError
    seen.add(id(node))
    keys = [_key(tree, child, depth + 1, seen) for child in node.children]
    if _may_be_loop(node) and len(set(keys)) == 1:
        return (type(node.value), keys[0], MANY)
    return (type(node.value), *keys)


def is_uniform(tree: Tree, node: Branch) -> bool:
    """Return whether a container is long and its children have one structure, so that it is written as a loop."""
    return _may_be_loop(node) and len({_key(tree, child, 0, set()) for child in node.children}) == 1


def _may_be_loop(node: Branch) -> bool:
    """Return whether a container is long, and its children are arrays or parts."""
    children = node.children
    return (
        len(children) >= RUN
        and type(node.value) in (dict, list, tuple)
        and (type(children[0]) is Leaf or all(map(_is_part, children)))
    )


def _is_part(node: Any) -> bool:
    """Return whether a node is a part: a container that holds arrays, but no other container that is rebuilt.

    For these, it is enough to check that the parts themselves are different objects.
    """
    return (
        type(node) is Branch
        and node.leaves
        and not any(type(child) is Branch and child.rebuilt for child in node.children)
    )
