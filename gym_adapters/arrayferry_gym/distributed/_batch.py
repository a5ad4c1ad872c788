"""Batches of observations that are put together from pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from arrayferry_gym._space_trees import build, leaves, split

__all__ = [
    "Piece",
    "batch_of_one",
    "is_remote",
    "is_stackable",
    "join",
    "join_lazily",
    "map_arrays",
    "row_of",
    "rows_of",
]

Piece = tuple[Sequence[int], Any]
"""Some environments, and a batch of their observations."""

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def rows_of(indices: Sequence[int]) -> slice | list[int]:
    """Return an index for the rows of some environments, a slice if possible."""
    first, last = indices[0], indices[-1]
    return slice(first, last + 1) if last - first + 1 == len(indices) else list(indices)


def is_stackable(space: Space[Any]) -> bool:
    """Tell whether a batch of observations consists of arrays only."""
    return all(isinstance(leaf, _ARRAYS) for leaf, _ in leaves(space))


def batch_of_one(space: Space[Any], observation: Any) -> Any:
    """Make a batch of one observation."""
    empty: Any = create_empty_array(space, 1, fn=np.zeros)
    return concatenate(space, [observation], empty)


def row_of(space: Space[Any], pieces: Sequence[Piece], index: int) -> Any:
    """Return the observation of one environment, of its own memory."""
    for indices, batch in reversed(pieces):
        if index in indices:
            row = list(indices).index(index)
            rows = [part[row] for part in split(space, batch)]
            return build(space, (x.copy() if isinstance(x, np.ndarray) else x for x in rows))
    raise LookupError(index)


def join(space: Space[Any], pieces: Sequence[Piece], num_envs: int) -> Any:
    """Put pieces together, in new memory. The later ones count."""
    whole = split(space, create_empty_array(space, num_envs, fn=np.empty))
    for indices, batch in pieces:
        parts = zip(whole, split(space, batch), strict=True)
        whole = [_written(old, indices, new) for old, new in parts]
    return build(space, whole)


def _written(batch: Any, indices: Sequence[int], part: Any) -> Any:
    if isinstance(batch, np.ndarray):
        batch[rows_of(indices)] = part
        return batch
    values = [None] * (max(indices) + 1) if batch is None else list(batch)  # a space of the user
    values += [None] * (max(indices) + 1 - len(values))
    for index, value in zip(indices, part, strict=True):
        values[index] = value
    return tuple(values)


def map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each array of a batch of observations."""
    if isinstance(tree, dict):
        return {key: map_arrays(function, part) for key, part in tree.items()}
    if type(tree) is tuple:
        return tuple(map_arrays(function, part) for part in tree)
    return function(tree)


def is_remote(tree: Any) -> bool:
    """Tell whether a batch consists of references to arrays in other processes."""
    found: list[bool] = []
    map_arrays(lambda array: found.append(isinstance(array, np.ndarray)), tree)
    return not any(found)


def join_lazily(pieces: Sequence[Piece], assembled: Sequence[Any], num_envs: int) -> Any:
    """Put pieces together as Dask arrays, without computing them. The later ones count.

    Args:
        pieces: some of them remote.
        assembled: the Dask arrays of those that are, in the same order.
        num_envs: the number of environments.
    """
    import dask.array as da

    remote = iter(assembled)
    arrays = [
        next(remote) if is_remote(batch) else map_arrays(da.from_array, batch)
        for _, batch in pieces
    ]
    listed = [index for indices, _ in pieces for index in indices]
    rows = {index: row for row, index in enumerate(listed)}
    order = [rows[index] for index in range(num_envs)]

    def joined(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {key: joined([part[key] for part in parts]) for key in parts[0]}
        if isinstance(parts[0], tuple):
            return tuple(joined(list(inner)) for inner in zip(*parts, strict=True))
        whole = da.concatenate(parts)
        return whole if order == list(range(len(listed))) else whole[order]

    return joined(arrays)
