"""Random numbers that are computed from raw random numbers: for exported graphs, and for rows that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, Namespace
from arrayferry_gym import Random, check_integers
from arrayferry_gym.extending import namespace


def is_whole(x: AnyArray) -> bool:
    """Return whether a value is an integer, or an array of an integer dtype."""
    dtype = getattr(x, "dtype", None)
    return isinstance(x, int) if dtype is None else "int" in dtype_name(dtype)


def drawn(rng: np.random.Generator, kind: str, shape: Any, dtype: str) -> Any:
    """Draw raw numbers of a kind, "uniform" or "normal"."""
    draw: Any = rng.random if kind == "uniform" else rng.standard_normal
    return draw(shape, dtype)


class RawRandom(Random):
    """Random numbers that are computed from raw random numbers, such as inputs of a graph.

    Args:
        xp: the namespace of the numbers.
        name: the part of the run that uses the numbers, such as "policy".
        take: a function (name, kind, shape, dtype) that returns raw numbers. The kind is "uniform" or "normal".
    """

    def __init__(self, xp: Namespace, name: str, take: Callable[[str, str, Any, str], Any]) -> None:
        self._xp, self._name, self._take, self._count = xp, name, take, 0

    def _raw(self, kind: str, shape: Any, dtype: str) -> Any:
        self._count += 1
        float_dtype = "float64" if dtype == "float64" else "float32"
        return self._take(f"random.{self._name}.{self._count - 1}", kind, shape, float_dtype)

    def _cast(self, x: AnyArray, dtype: str) -> Any:
        return self._xp.astype(self._xp.asarray(x), getattr(self._xp, dtype))

    def _floats(self, *bounds: Any) -> Any:
        """Return the bounds. Integer arrays become float64, since the difference of two integers may overflow."""
        pairs = [(x, is_whole(x) and not isinstance(x, int)) for x in bounds]
        return (self._cast(x, "float64") if is_array else x for x, is_array in pairs)

    def uniform(
        self, shape: Any, low: AnyArray = 0.0, high: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        shape, dtype, low, high = self._checked("uniform", shape, dtype, low, high)
        low, high = self._floats(low, high)
        return self._cast(self._raw("uniform", shape, dtype) * (high - low) + low, dtype)

    def normal(
        self, shape: Any, mean: AnyArray = 0.0, std: AnyArray = 1.0, dtype: str = "float32"
    ) -> Any:
        shape, dtype, mean, std = self._checked("normal", shape, dtype, mean, std)
        mean, std = self._floats(mean, std)
        return self._cast(self._raw("normal", shape, dtype) * std + mean, dtype)

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        xp = self._xp
        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        check_integers(low, high, dtype)
        if isinstance(low, int) and isinstance(high, int) and high - low >= 2**63:
            raise NotImplementedError(
                "an exported function can draw integers only from ranges of fewer than 2**63 integers"
            )
        low, high = (np.uint64(x % 2**64) if isinstance(x, int) else x for x in (low, high))
        # as int64, the difference of the bounds is exact
        low, high = (self._cast(x, "int64") for x in (low, high))
        uniforms = self._raw("uniform", shape, "float64")  # float32 has no odd numbers above 2**24
        offsets = self._cast(xp.floor(uniforms * self._cast(high - low, "float64")), "int64")
        return self._cast(low + xp.minimum(offsets, high - low - 1), dtype)

    def categorical(self, shape: Any, logits: AnyArray, dtype: str = "int32") -> Any:
        xp = self._xp
        shape, dtype, logits = self._checked("categorical", shape, dtype, logits)
        uniforms = self._raw("uniform", (*shape, logits.shape[-1]), "float32")
        # the index with the shortest exponential waiting time is drawn, as in `HostRandom`
        waits = -xp.log1p(-self._cast(uniforms, "float64")) + 1e-300
        return self._cast(xp.argmax(self._cast(logits, "float64") - xp.log(waits), axis=-1), dtype)


class NamedRows(RawRandom):
    """Random numbers in NumPy for rows with names. In every batch, a row of the same name draws the same numbers.

    Args:
        seed: the seed that, with the names, determines all numbers.
        names: the name of each row, integers (n,).

    Attributes:
        comparable: whether rows can be compared between batches. True if each draw had an axis of rows or no axis.
    """

    def __init__(self, seed: int, names: Any) -> None:
        super().__init__(namespace(af.registry.backend("numpy")), "", self._rows)
        self._seed, self._names = seed, names
        self._drawn = 0
        self.comparable = True

    def _rows(self, name: str, kind: str, shape: Any, dtype: str) -> Any:
        """Return raw numbers. They depend on the number and the sizes of earlier draws."""
        is_per_row = shape[:1] == (len(self._names),)
        self.comparable = self.comparable and (is_per_row or not shape)
        row_shape = shape[1:] if is_per_row else shape
        row_names = self._names[:, None] if is_per_row else [()]
        seeds = ((self._seed, self._drawn, *row_name) for row_name in row_names)
        rows = [drawn(np.random.default_rng(seed), kind, row_shape, dtype) for seed in seeds]
        self._drawn += 1 + math.prod(row_shape)
        return np.stack(rows) if is_per_row else rows[0]

    def integers(self, shape: Any, low: AnyArray, high: AnyArray, dtype: str = "int32") -> Any:
        uniforms = self._raw("uniform", tuple(shape), "float64")
        return np.floor(low + (high - low) * uniforms).astype(dtype)
