"""Batches of observations with other rows, and the spaces of batches of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from .trees import ARRAYS, build, leaves, split


def with_rows(space: Space[Any], batch: Any, rows: Mapping[int, Any]) -> Any:
    """Return a batch of observations with some rows replaced, in new memory.

    Args:
        space: the space of one observation. Of a batch of values that are not arrays, each part is a sequence.
        batch: the observations, (n, ...), in NumPy.
        rows: observations in NumPy, by the numbers of their rows.
    """
    parts = zip(leaves(space), split(space, batch), strict=True)
    columns: list[Any] = [
        np.array(part, leaf.dtype) if isinstance(leaf, ARRAYS) else list(part)
        for (leaf, _), part in parts
    ]
    for row, observation in rows.items():
        for column, part in zip(columns, split(space, observation), strict=True):
            column[row] = part
    return build(space, (tuple(x) if isinstance(x, list) else x for x in columns))


def batch_of_actions(space: Any, n: int) -> Space[Any]:
    """Return the space of `n` actions. Unlike Gymnasium's `batch_space`, it makes no Box of whole numbers in a range."""
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
