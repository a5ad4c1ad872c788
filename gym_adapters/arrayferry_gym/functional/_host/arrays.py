"""Values of ordinary environments as arrays of fixed shapes and dtypes, which compiled code needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from gymnasium import Space

import arrayferry as af
from arrayferry_gym._arrays import cast_numbers, held_dtype
from arrayferry_gym._spaces.trees import build, leaves, split
from arrayferry_gym.functional._contract.errors import EnvResultError

Shape = tuple[tuple[int, ...], Any]
"""The shape and the dtype of an array."""


def jax_dtype(dtype: Any) -> Any:
    """Return the dtype of JAX that corresponds to one of NumPy."""
    return np.dtype(held_dtype(dtype, af.registry.backend("jax")))


class SpaceArrays:
    """The arrays of a space whose shapes are fixed.

    Args:
        space: the space.
        what: its name in messages.

    Attributes:
        shapes: the shape of each array, and the dtype that JAX has for it.
    """

    def __init__(self, space: Space[Any], what: str) -> None:
        self._space = space
        self._what = what
        self.shapes: list[Shape] = []
        for inner, path in leaves(space):
            if inner.shape is None or inner.dtype is None or inner.dtype.kind not in "biufc":
                raise af.OptionError(
                    f"{what} has no fixed shape, since {inner} has none"
                    + (f", at {path}" if path else ""),
                    remedy="Flatten it or pad it by a wrapper: inside jit, shapes are fixed.",
                )
            self.shapes.append((tuple(inner.shape), jax_dtype(inner.dtype)))

    def build(self, arrays: Iterator[Any]) -> Any:
        """Put a value of the space together from the next arrays."""
        return build(self._space, arrays)

    def take(self, value: Any) -> list[Any]:
        """Return the arrays of a value of the space."""
        return split(self._space, value)

    def arrays(self, value: Any) -> list[Any]:
        """Return the arrays of a value in NumPy, with the shapes and dtypes of the space."""

        def mismatch(part: Any, path: str, needed: str) -> EnvResultError:
            place = f" at {path}" if path else ""
            return EnvResultError(
                f"{value!r:.80} does not have the structure of {self._what}, {self._space}, which takes {needed}{place}"
            )

        parts = split(self._space, value, mismatch)
        return [
            fitted(part, shape, dtype, self._what)
            for part, (shape, dtype) in zip(parts, self.shapes, strict=True)
        ]


def fitted(value: Any, shape: tuple[int, ...], dtype: Any, what: str) -> Any:
    """Return a value as an array or a scalar of a shape and a dtype, if no number changes."""
    cls = type(value)
    if cls is bool and dtype.kind == "b" and not shape:
        return value
    if cls is float and dtype.kind == "f" and not shape and -_SAFE < value < _SAFE:
        return dtype.type(value)
    x = value
    if cls is not np.ndarray:
        known = isinstance(value, (np.ndarray, np.generic, bool, float, int, list, tuple))
        x = np.asarray(value if known else af.convert(value, "numpy"))
    if x.shape != shape:
        raise EnvResultError(
            f"an array of the shape {x.shape} was returned, where {what} has {shape}"
        )
    if x.dtype == dtype:
        return x
    try:
        return cast_numbers(x, dtype)
    except ValueError:
        raise EnvResultError(
            f"an array of dtype {x.dtype} was returned, whose values do not fit {dtype}, the dtype of {what} in JAX"
        ) from None


_SAFE = 1e4
"""Python numbers below this fit every floating-point dtype."""


class OneArray:
    """An array.

    Args:
        shape: its shape.
        dtype: its dtype.
        what: its name in messages.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, what: str) -> None:
        self.shapes: list[Shape] = [(shape, dtype)]
        self._what = what

    def build(self, arrays: Iterator[Any]) -> Any:
        """Return the next array."""
        return next(arrays)

    def arrays(self, value: Any) -> list[Any]:
        """Return a value as an array in NumPy, of this shape and dtype."""
        return [fitted(value, *self.shapes[0], self._what)]


class InfoArrays:
    """The arrays of infos that compiled code returns.

    Args:
        example: a dict of arrays of the same shapes and dtypes.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        leaves, self._layout = af.flatten(example, everything=True)
        arrays = [np.asarray(af.convert(leaf, "numpy")) for leaf in leaves]
        for x, path in zip(arrays, self._layout.paths, strict=True):
            if x.dtype.kind not in "biufc":
                raise af.OptionError(
                    f"info_like{path} is not an array of numbers", remedy="Leave it out."
                )
        self.shapes: list[Shape] = [(x.shape, jax_dtype(x.dtype)) for x in arrays]

    def build(self, arrays: Iterator[Any]) -> Any:
        """Put an info together from the next arrays."""
        return self._layout.unflatten(list(islice(arrays, len(self.shapes))))

    def arrays(self, info: dict[str, Any]) -> list[Any]:
        """Return the arrays of an info. Those that are missing are zeros."""
        if not self.shapes:
            return []
        leaves, layout = af.flatten(info, everything=True)
        values = dict(zip(layout.paths, leaves, strict=True))
        return [
            np.zeros(shape, dtype)
            if path not in values
            else fitted(values[path], shape, dtype, f"info_like{path}")
            for path, (shape, dtype) in zip(self._layout.paths, self.shapes, strict=True)
        ]
