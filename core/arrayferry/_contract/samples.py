"""Arrays of all dtypes, shapes and layouts, for the tests of the contract kit."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from arrayferry._dtypes import dtype_info

__all__ = [
    "BEYOND",
    "CUBE",
    "HYPER",
    "LARGE",
    "SHAPES",
    "SIZES",
    "laid_out",
    "layouts",
    "numbers",
    "reversed_axes",
    "sample",
    "special",
]

CUBE = (2, 3, 4)
"""The shape of arrays whose layouts are tried."""
HYPER = (2, 3, 2, 3)
"""Another such shape, for fewer tests."""
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
LARGE = 16 * 2**20
"""Size of the largest array in bytes."""
BEYOND = ("datetime64[ns]", "datetime64[D]", "timedelta64[us]", "U3", "S3")
"""Dtypes beyond those of the standard, for a library that has all of NumPy's."""


def sample(dtype: np.dtype[Any], shape: tuple[int, ...], shift: int = 0) -> np.ndarray[Any, Any]:
    """Return an array of small numbers that differ if its axes are permuted.

    Args:
        dtype: its dtype.
        shape: its shape.
        shift: another one gives other numbers.
    """
    index = np.arange(int(np.prod(shape))).reshape(shape)
    values: Any = (index + 11 + 5 * shift) * 40_503 % 65_537 % 5
    if dtype.kind in "mM":
        values = values * 1_000_000_007 - 2  # more than one unit can hold
        return np.asarray(values.astype(np.int64)).view(dtype)
    if dtype.kind in "ifc":
        values = values - 2
    if dtype.kind == "c":
        values = values * np.asarray(1 - 2j)
    return np.asarray(np.asarray(values).astype(dtype))


@functools.cache
def _pattern(dtype: str, size: int) -> np.ndarray[Any, Any]:
    values = (np.arange(size) % 100 + 1).astype(dtype)
    values.flags.writeable = False
    return values


def numbers(
    dtype: np.dtype[Any], shape: tuple[int, ...], aligned: bool = True
) -> np.ndarray[Any, Any]:
    """Return a writable array that begins at a multiple of 64 bytes, or one element after one."""
    size = int(np.prod(shape))
    raw = np.empty(size * dtype.itemsize + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + (0 if aligned else dtype.itemsize)
    array: np.ndarray[Any, Any] = raw[begin : begin + size * dtype.itemsize].view(dtype)
    array[:] = _pattern(dtype.name, size)
    return array.reshape(shape)


def special(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return numbers that are easily lost: the ends of the range, signed zeros, infinities, NaN."""
    if dtype.kind in "mM":
        whole = np.iinfo(np.int64)
        counts = [
            whole.min,
            whole.max,
            0,
            1,
            -1,
            1_500_000_007,
        ]  # the first stands for "not a time"
        return np.array(counts).view(dtype)
    kind, limits = dtype_info(dtype)
    if kind == "bool":
        return np.array([True, False])
    if not kind:
        return np.array(["", "a", "abc"]).astype(dtype)
    if kind in ("int", "uint"):
        low, high = int(limits.min), int(limits.max)
        exact = [2**53 + 1, high - 1] if high > 2**53 else []  # float64 cannot represent it
        return np.array([low, high, 0, 1, *exact], object).astype(dtype)
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1 / 3]
    ends = np.array([limits.max, limits.min, limits.tiny])
    with np.errstate(all="ignore"):
        made = np.concatenate([np.array(values), ends.astype(np.float64)]).astype(dtype)
    if kind == "complex":
        pairs = [complex(0.0, -0.0), complex(-0.0, 1), complex(np.inf, -1), complex(1, -np.inf)]
        made = np.concatenate([made, np.array(pairs, dtype)])
    return made


def laid_out(
    values: np.ndarray[Any, Any], *, more: bool = False
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield arrays of equal values in other layouts, each in its own memory, with a name for the layout.

    They are writable and have no negative strides.

    Args:
        values: the values.
        more: whether to yield more than one layout of each kind.
    """
    axes = range(values.ndim)
    yield "in Fortran order", np.array(values, order="F")
    orders = list(permutations(axes))[1:-1] if values.ndim < 4 else [(1, 0, 3, 2), (3, 1, 0, 2)]
    for order in orders if more else orders[len(orders) // 2 :][:1]:
        view = np.empty([values.shape[n] for n in order], values.dtype).transpose(np.argsort(order))
        yield f"with axes in the order {order} in memory", _filled(view, values)
    steps = [tuple(axes)]
    if more:
        steps += [(n,) for n in axes]
    for strided in steps:
        names = "each axis" if len(strided) == len(axes) else f"axis {strided[0]}"
        cut: Any = tuple(slice(1, None, 2) if n in strided else slice(None) for n in axes)
        shape = [
            2 * length + 1 if n in strided else length for n, length in enumerate(values.shape)
        ]
        yield f"strided along {names}", _filled(np.zeros(shape, values.dtype)[(*cut, ...)], values)
    if more:
        cut = (*(slice(1, -1) for _ in axes), ...)
        around = np.zeros([length + 2 for length in values.shape], values.dtype)
        yield "inside a larger array", _filled(around[cut], values)


def reversed_axes(
    values: np.ndarray[Any, Any],
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield arrays of equal values with negative strides."""
    axes: list[Sequence[int]] = [*((n,) for n in range(values.ndim)), range(values.ndim)]
    for turned in axes:
        cut = tuple(
            slice(None, None, -1) if n in turned else slice(None) for n in range(values.ndim)
        )
        yield f"reversed along the axes {tuple(turned)}", values[(*cut, ...)].copy()[(*cut, ...)]


def _filled(view: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view[...] = values
    return view


def layouts(dtype: np.dtype[Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield arrays of a dtype, with a name for how each lies in memory."""
    base = np.arange(24).astype(dtype).reshape(4, 6)
    yield "in Fortran order", np.asfortranarray(base)
    yield "transposed", base.T
    yield "strided", base[::2, ::3]
    yield "flipped", base[::-1]
    yield "flipped in both axes", base[::-1, ::-1]
    yield "broadcast", np.broadcast_to(base[0], (3, 6))
    yield "of zero strides", np.lib.stride_tricks.as_strided(base, (3, 3), (0, dtype.itemsize))
    yield "big-endian", base.astype(dtype.newbyteorder(">"))
    yield (
        "unaligned",
        np.frombuffer(bytearray(b"x" + base.tobytes()), np.uint8)[1:].view(dtype),
    )
    yield "of odd strides", _odd(dtype)
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", dtype)])["b"]
    yield "read-only", _read_only(base)
    yield "empty", base[:0]
    yield "empty, flipped", base[:0][::-1]
    yield "0-d", np.array(3, dtype)
    yield "a subclass", base.view(np.recarray)
    yield "of rank 12", base.reshape((1,) * 10 + (4, 6))
    for shape in (CUBE, HYPER):
        values = sample(dtype, shape)
        for name, laid in (*laid_out(values, more=True), *reversed_axes(values)):
            yield f"of shape {shape}, {name},", laid
    for name, laid in laid_out(np.zeros((2, 0, 3), dtype)):
        yield f"of shape (2, 0, 3), {name},", laid


def _odd(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    step = dtype.itemsize + 1
    return np.ndarray((3,), dtype, bytearray(3 * step), strides=(step,))


def _read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = x.copy()
    x.flags.writeable = False
    return x
