"""Random numbers for rows with names. In every batch, a row of the same name draws the same numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arrayferry.typing import AnyArray
from arrayferry_gym import Random


class NamedRows(Random):
    """Random numbers in NumPy for rows with names. In every batch, a row of the same name draws the same numbers.

    Args:
        seed: the seed that, with the names, determines all numbers.
        names: the name of each row, integers (n,).

    Attributes:
        comparable: whether rows can be compared between batches. True if each draw had an axis of rows or no axis.
    """

    def __init__(self, seed: int, names: Any) -> None:
        self._seed = seed
        self._names = names
        self._count = 0
        self.comparable = True

    def _draw(self, shape: Any) -> Any:
        """Return uniform numbers from 0 to 1. They depend on the number and the sizes of earlier draws."""
        shape = tuple(shape)
        is_per_row = shape[:1] == (len(self._names),)
        self.comparable = self.comparable and (is_per_row or not shape)
        row_shape = shape[1:] if is_per_row else shape
        drawn = [
            np.random.default_rng((self._seed, self._count, *name)).random(row_shape)
            for name in (self._names[:, None] if is_per_row else [()])
        ]
        self._count += 1 + math.prod(row_shape)
        return np.stack(drawn) if is_per_row else drawn[0]

    def uniform(
        self, shape: Any, low: AnyArray = 0.0, high: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        return (low + (high - low) * self._draw(shape)).astype(dtype)

    def normal(
        self, shape: Any, mean: AnyArray = 0.0, std: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        away, angle = self._draw(shape), self._draw(shape)
        # the Box-Muller method
        drawn = np.sqrt(-2 * np.log(1 - away)) * np.cos(2 * np.pi * angle)
        return (mean + std * drawn).astype(dtype)

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        return np.floor(low + (high - low) * self._draw(shape)).astype(dtype)

    def categorical(self, shape: Any, logits: AnyArray, dtype: str = "int32") -> Any:
        waits = -np.log(1 - self._draw((*shape, logits.shape[-1]))) + 1e-300
        return (logits - np.log(waits)).argmax(-1).astype(dtype)
