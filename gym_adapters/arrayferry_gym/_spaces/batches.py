"""Batches of observations assembled from rows, and the spaces of batches of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, create_empty_array

from .trees import build, split

Rows = slice | list[int]
"""An index for several rows, in ascending order."""
Piece = tuple[int | Rows, Any]
"""A row and its observation, or an index for several rows and a batch of their observations."""


def join(
    space: Space[Any], pieces: Sequence[Piece], size: int, fill: Callable[..., Any] = np.empty
) -> Any:
    """Assemble pieces into a new batch. Later pieces overwrite earlier pieces.

    Args:
        space: the space of one observation.
        pieces: the rows to fill and their observations, in NumPy.
        size: the number of rows.
        fill: a function that creates an array from shape and dtype, like `numpy.zeros`. Rows without an observation
            have the values of this array.
    """
    empty_batch: Any = create_empty_array(space, size, fn=fill)
    if isinstance(empty_batch, np.ndarray):  # for one array, this is faster than the general case
        for rows, observations in pieces:
            empty_batch[rows] = observations
        return empty_batch
    columns = [_column(part, size) for part in split(space, empty_batch)]
    for rows, observations in pieces:
        for column, part in zip(columns, split(space, observations), strict=True):
            if isinstance(rows, int) or isinstance(column, np.ndarray):
                column[rows] = part
            else:
                for row, value in zip(numbers_of(rows, size), part, strict=True):
                    column[row] = value
    return build(space, (tuple(x) if isinstance(x, list) else x for x in columns))


def batch_of_actions(space: Any, n: int) -> Space[Any]:
    """Return the space of a batch of `n` actions.

    Unlike Gymnasium's `batch_space`, this function does not turn a MultiDiscrete or MultiBinary into a Box.
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, batch_of_actions(part, n)) for key, part in space.items()])
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batch_of_actions(part, n) for part in space.spaces])
    if isinstance(space, spaces.MultiDiscrete):
        counts, start = (np.stack([x] * n) for x in (space.nvec, space.start))
        return spaces.MultiDiscrete(counts, dtype=space.dtype.type, start=start)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((n, *space.shape))
    return batch_space(space, n)


def _column(empty: Any, size: int) -> Any:
    """Return the array that rows are written to, or a list for spaces that cannot be stacked, such as Text."""
    if isinstance(empty, np.ndarray):
        return empty
    return [None] * size if empty is None else list(empty)


def numbers_of(rows: int | Rows, size: int) -> Sequence[int]:
    """Return the row numbers, from 0, that an index selects from `size` rows."""
    if isinstance(rows, slice):
        return range(size)[rows]
    return [rows] if isinstance(rows, int) else rows
