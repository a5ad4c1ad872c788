"""Arrays of all dtypes, shapes and layouts, for the tests of the contract kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from arrayferry._route.dtypes import kind_of, limits_of

__all__ = ["SHAPES", "SIZES", "layouts", "sample", "special"]

SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (5,),
    (0,),
    (2, 3),
    (3, 0, 2),
    (2, 1, 3),
    (2, 3, 1, 2),
)
SIZES = (1, 16, 1024, 16 * 1024, 256 * 1024, 1024 * 1024)
"""Numbers of elements: of float32 4 bytes to 4 MiB, past the sizes at which frameworks change strategy."""


def sample(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape))
    numbers = np.arange(size).reshape(shape) % 5
    if dtype.kind in "ifc":
        numbers = numbers - 2
    if dtype.kind == "c":
        numbers = numbers * np.asarray(1 - 2j)
    return np.asarray(np.asarray(numbers).astype(dtype))


def special(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    kind = kind_of(dtype)
    if kind == "bool":
        return np.array([True, False])
    limits = limits_of(dtype)
    if kind in ("int", "uint"):
        return np.array([int(limits.min), int(limits.max), 0, 1], object).astype(dtype)
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
    exact = np.array([limits.max, limits.min, limits.tiny])
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(numbers), exact.astype(np.float64)]).astype(dtype)


def layouts(dtype: np.dtype[Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield arrays of a dtype, with a name for how each lies in memory."""
    base = np.arange(24).astype(dtype).reshape(4, 6)
    yield "Fortran order", np.asfortranarray(base)
    yield "transposed", base.T
    yield "strided", base[::2, ::3]
    yield "flipped", base[::-1]
    yield "flipped in both axes", base[::-1, ::-1]
    yield "broadcast", np.broadcast_to(base[0], (3, 6))
    yield "zero strides", np.lib.stride_tricks.as_strided(base, (3, 3), (0, dtype.itemsize))
    yield "big-endian", base.astype(dtype.newbyteorder(">"))
    yield (
        "unaligned",
        np.frombuffer(bytearray(b"x" + base.tobytes()), np.uint8)[1:].view(dtype),
    )
    yield "odd strides", _odd(dtype)
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", dtype)])["b"]
    yield "read-only", _read_only(base)
    yield "empty", base[:0]
    yield "empty, flipped", base[:0][::-1]
    yield "0-d", np.array(3, dtype)
    yield "a subclass", base.view(np.recarray)
    yield "rank 12", base.reshape((1,) * 10 + (4, 6))


def _odd(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    step = dtype.itemsize + 1
    return np.ndarray((3,), dtype, bytearray(3 * step), strides=(step,))


def _read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = x.copy()
    x.flags.writeable = False
    return x
