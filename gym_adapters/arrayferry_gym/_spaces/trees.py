"""Dict and Tuple spaces as trees. Functions list the spaces inside, split values into parts, and reassemble values.

All other spaces are leaves. `leaves`, `split` and `build` use the same order of the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gymnasium import Space, spaces

from arrayferry.typing import AnyArray, AnyTree

ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""The spaces whose values are arrays of one shape and dtype."""

Mismatch = Callable[[Any, str, str], Exception]
"""A function that returns the error for a value of the wrong structure.

Its arguments are the value, the path of the value, and a description of the expected structure.
"""


def branches(space: Space[Any]) -> list[tuple[Any, Space[Any]]] | None:
    """Return the keys and spaces directly inside a Dict or Tuple, or None for any other space."""
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return list(enumerate(space.spaces))
    return None


def keyed(
    space: Space[Any], keys: tuple[Any, ...] = ()
) -> Iterator[tuple[Space[Any], tuple[Any, ...]]]:
    """Yield each leaf of a space, and the tuple of keys that leads to it."""
    subspaces = branches(space)
    if subspaces is None:
        yield space, keys
        return
    for key, part in subspaces:
        yield from keyed(part, (*keys, key))


def leaves(space: Space[Any]) -> Iterator[tuple[Space[Any], str]]:
    """Yield each leaf of a space, and the path to it as text, such as `"['move'][0]"`."""
    return ((leaf, "".join(f"[{key!r}]" for key in keys)) for leaf, keys in keyed(space))


def shapes(space: Space[Any]) -> list[Any]:
    """Return a list of the shapes of the leaves of a space, with None for a leaf without a shape."""
    return [leaf.shape for leaf, _ in leaves(space)]


def batch_shapes(space: Space[Any], n: int) -> list[Any]:
    """Return a list of the shapes of the leaves of a batch of `n` values. A leaf without a shape counts as `()`."""
    return [(n, *(shape or ())) for shape in shapes(space)]


def shapes_of(space: Space[Any], value: AnyTree) -> list[Any] | None:
    """Return a list of the shapes of the parts of a value, or None if its structure is not that of its space."""
    try:
        return [tuple(part.shape) for part in split(space, value)]
    except Exception:  # the value may be of any class
        return None


def split(
    space: Space[Any], value: AnyTree, mismatch: Mismatch | None = None, path: str = ""
) -> list[Any]:
    """Return the parts of a value, one for each leaf of its space.

    Args:
        space: the space of the value.
        value: a dict or tuple with the structure of the space, or a batch of them.
        mismatch: a function that returns the error for a value of the wrong structure, or None to skip this check.
        path: the path of the value, for errors.
    """
    subspaces = branches(space)
    if subspaces is None:
        return [value]
    if mismatch is not None and isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            raise mismatch(value, path, f"a dict with the keys {list(space.spaces)}")
    elif mismatch is not None and (
        not isinstance(value, (tuple, list)) or len(value) != len(subspaces)
    ):
        raise mismatch(value, path, f"a tuple of {len(subspaces)} parts")
    return [
        leaf_part
        for key, part in subspaces
        for leaf_part in split(part, value[key], mismatch, f"{path}[{key!r}]")
    ]


def values_at(space: Space[Any], batch: Any, rows: AnyArray) -> Any:
    """Return the values in some rows of a batch, as copies: an array or, for a Dict or Tuple, a list of values.

    Args:
        space: the space of one value.
        batch: a batch of values, in NumPy.
        rows: the indices of the rows.
    """
    if branches(space) is None:
        return batch[rows]
    columns = (part[rows] for part in split(space, batch))
    return [build(space, parts) for parts in zip(*columns, strict=True)]


def build(space: Space[Any], parts: Iterable[Any]) -> Any:
    """Assemble a value of a space from parts, one for each leaf, in the order of `leaves`."""
    remaining_parts = iter(parts)
    subspaces = branches(space)
    if subspaces is None:
        return next(remaining_parts)
    built = {key: build(part, remaining_parts) for key, part in subspaces}
    return built if isinstance(space, spaces.Dict) else tuple(built.values())
