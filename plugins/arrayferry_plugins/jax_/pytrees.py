"""JAX's pytrees: types that are registered with JAX."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry import Container, StructureError
from arrayferry._utilities.text import type_name
from arrayferry.typing import AnyTree


class Pytrees(Container):
    """The container for types that are registered with JAX as pytrees, such as Equinox modules or Flax structs."""

    types: tuple[Any, ...] = ("jax.tree_util.Partial",)

    def takes(self, cls: type) -> bool:
        tree_util: Any = getattr(sys.modules.get("jax"), "tree_util", None)
        registry = getattr(tree_util, "default_registry", None)
        if issubclass(cls, tuple) or registry is None:
            return False
        if hasattr(registry, "is_node"):
            return bool(registry.is_node(cls))
        # older versions of JAX have no public `is_node`
        return cls in sys.modules["jax._src.tree_util"]._registry

    def children(self, value: AnyTree) -> Sequence[Any]:
        return _flatten_once(value)[0]

    def rebuild(self, value: AnyTree, children: list[Any]) -> Any:
        rebuilt = _flatten_once(value)[1].unflatten(children)
        is_same = _same_leaves(self.children(rebuilt), children)
        # if the flatten function returns new objects in each call, `is_same` proves nothing
        if not is_same and _same_leaves(self.children(value), self.children(value)):
            cls = type(value)
            raise StructureError(
                f"a {type_name(cls)} cannot be rebuilt: its flatten function does not return the "
                "children that were passed to its unflatten function",
                remedy="Let the unflatten function store the children unchanged, as JAX requires, or register a "
                "Container for this class.",
            )
        return rebuilt

    def static(self, value: AnyTree) -> Any:
        return _flatten_once(value)[1].node_data()

    def steps(self, value: AnyTree) -> Sequence[str]:
        import jax

        path_children, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=_all_but_the_first())
        return [jax.tree_util.keystr(path) for path, _ in path_children]


def _flatten_once(value: AnyTree) -> tuple[list[Any], Any]:
    """Return the direct children of a pytree, and the treedef of this one level."""
    import jax

    children, structure = jax.tree_util.tree_flatten(value, is_leaf=_all_but_the_first())
    return children, structure


def _same_leaves(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether the children of two pytrees are the same objects, or contain the same leaves."""
    import jax

    if len(some) == len(others) and all(map(operator.is_, some, others)):
        return True
    leaves, other_leaves = jax.tree_util.tree_leaves(some), jax.tree_util.tree_leaves(list(others))
    return len(leaves) == len(other_leaves) and all(map(operator.is_, leaves, other_leaves))


def _all_but_the_first() -> Callable[[Any], bool]:
    """Return a function for JAX's `is_leaf`. JAX calls it first for the root: return False there, else True."""
    answers = iter((False,))
    return lambda node: next(answers, True)
