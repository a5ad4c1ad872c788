"""Batches of observations that are put together from rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import create_empty_array

from .trees import build, split

Piece = tuple[int | Sequence[int], Any]
"""A row and its observation, or several rows in ascending order and a batch of their observations."""


def join(
    space: Space[Any],
    pieces: Sequence[Piece],
    size: int,
    fill: Callable[..., Any] = np.empty,
) -> Any:
    """Put pieces together, in new memory. Later pieces overwrite earlier ones.

    Args:
        space: the space of one observation.
        pieces: rows and their observations, in NumPy.
        size: the number of rows.
        fill: makes the arrays, as `numpy.zeros` does. It decides what rows without an observation hold.
    """
    empty = split(space, create_empty_array(space, size, fn=fill))
    columns = [_column(part, size) for part in empty]
    for rows, observations in pieces:
        for column, part in zip(columns, split(space, observations), strict=True):
            if isinstance(rows, int):
                column[rows] = part
            elif isinstance(column, np.ndarray):
                column[rows_of(rows)] = part
            else:
                for row, value in zip(rows, part, strict=True):
                    column[row] = value
    return build(space, (tuple(x) if isinstance(x, list) else x for x in columns))


def _column(empty: Any, size: int) -> Any:
    """Return what rows are written to: a list for spaces that cannot be stacked, such as Text."""
    if isinstance(empty, np.ndarray):
        return empty
    return [None] * size if empty is None else list(empty)


def rows_of(indices: Sequence[int]) -> slice | list[int]:
    """Return an index for some rows in ascending order, a slice if possible."""
    first, last = indices[0], indices[-1]
    return slice(first, last + 1) if last - first + 1 == len(indices) else list(indices)
