"""Structures: plain data that describes where the arrays are in arguments and results.

The structure of an array is None. The structure of a container is a list with three items: its kind, the name of its
class or "", and a list of its children, each as a pair of a key and a structure. The structure of `{"a": x}` is
`["dict", "", [["a", None]]]`. The kinds are "none", "tuple", "list", "dict", "namedtuple" and "object".
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from arrayferry.typing import AnyTree

from ._errors import ProgramError, TranslationError

KINDS: dict[str, Any] = {"none": type(None), "tuple": tuple, "list": list, "dict": dict}
"""The kinds of containers that are built-in classes of Python, each with its class."""


def structure_of(tree: AnyTree) -> Any:
    """Return the structure of a JAX pytree.

    Raises:
        TranslationError: a key of a dict is neither a string nor an integer.
    """
    import jax

    children = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)[0]
    if len(children) == 1 and not children[0][0]:
        return None
    entries = [path[0] for path, _ in children]
    kind = _kind_of(tree, entries)
    keys = [getattr(x, "name", getattr(x, "key", index)) for index, x in enumerate(entries)]
    for key in keys:
        if type(key) not in (str, int):
            raise TranslationError(
                f"a dict with the key {key!r} cannot be saved",
                remedy="Use strings or integers as keys.",
            )
    pairs = [[key, structure_of(child)] for key, (_, child) in zip(keys, children, strict=True)]
    return [kind, type(tree).__name__ if kind in ("namedtuple", "object") else "", pairs]


def _kind_of(node: Any, entries: list[Any]) -> str:
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return "namedtuple"
    for kind, container_class in KINDS.items():
        if isinstance(node, container_class):
            return kind
    return "object" if all(hasattr(entry, "name") for entry in entries) else "tuple"


def take_apart(structure: Any, value: AnyTree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each array in `value`, which must have this structure.

    Raises:
        ProgramError: the value has another structure.
    """
    if structure is None:
        yield path, value
        return
    kind, class_name, pairs = structure
    if kind == "none":
        if value is not None:
            raise _other(path, "None", value)
        return
    if kind == "dict":
        if not isinstance(value, dict) or {*value} != {key for key, _ in pairs}:
            raise _other(path, f"a dict with the keys {[key for key, _ in pairs]}", value)
    elif kind != "object" and (not isinstance(value, (tuple, list)) or len(value) != len(pairs)):
        raise _other(path, f"a {kind} of {len(pairs)}", value)
    for index, (key, child) in enumerate(pairs):
        if kind == "dict":
            yield from take_apart(child, value[key], f"{path}[{key!r}]")
        elif kind != "object":
            yield from take_apart(child, value[index], f"{path}[{index}]")
        elif hasattr(value, key):
            yield from take_apart(child, getattr(value, key), f"{path}.{key}")
        else:
            raise _other(path, f"a {class_name} with {key}", value)


def put_together(structure: Any, leaves: Iterator[Any]) -> Any:
    """Return a tree with this structure and these leaves. Objects of user-defined classes become `SimpleNamespace`."""
    if structure is None:
        return next(leaves)
    kind, class_name, pairs = structure
    children = {key: put_together(child, leaves) for key, child in pairs}
    if kind == "dict":
        return children
    if kind == "object":
        return SimpleNamespace(**children)
    if kind == "namedtuple":
        return _named_tuple(class_name, [*children], children.values())
    return None if kind == "none" else KINDS[kind](children.values())


def _named_tuple(name: str, fields: Iterable[str], children: Iterable[Any]) -> Any:
    return _named(name, *fields)(*children)


@cache
def _named(name: str, *fields: str) -> Any:
    cls = namedtuple(name, fields, rename=True)  # type: ignore[misc]
    # no module contains the class, so a copy or an unpickled object is made by `_named_tuple`
    cls.__reduce__ = lambda self: (_named_tuple, (name, fields, tuple(self)))  # type: ignore[method-assign, arg-type]
    return cls


def _other(path: str, expected: str, value: AnyTree) -> ProgramError:
    place_text = f" at {path}" if path else ""
    actual_text = f"a {type(value).__name__}"
    if isinstance(value, dict):
        actual_text += f" with the keys {[*value]!r:.200}"
    elif isinstance(value, (tuple, list)):
        actual_text += f" of {len(value)}"
    return ProgramError(
        f"the program needs {expected}{place_text}, not {actual_text}",
        remedy="Pass arguments with the structure for which the program was made, or make another program.",
    )
