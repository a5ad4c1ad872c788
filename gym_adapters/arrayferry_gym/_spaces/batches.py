"""Batches of observations with other rows, and the spaces of batches of actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from arrayferry.typing import AnyTree

from .trees import build, leaves, split


def with_rows(space: Space[Any], batch: AnyTree, rows: Iterable[Any]) -> Any:
    """Return a copy of a batch of observations in which other observations replace some rows.

    Args:
        space: the space of one observation.
        batch: the observations, in NumPy.
        rows: for each row, the observation that replaces it, in NumPy, or None to keep the row.
    """
    # the dtype is that of the space, since the library of the agent may have narrowed the batch
    columns: Any = [
        np.array(x, leaf.dtype) if isinstance(x, np.ndarray) else list(x)
        for (leaf, _), x in zip(leaves(space), split(space, batch), strict=True)
    ]
    for index, row in enumerate(rows):
        if row is not None:
            for column, part in zip(columns, split(space, row), strict=True):
                column[index] = part
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
