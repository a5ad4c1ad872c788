"""Arrays of all dtypes, shapes and layouts, for the tests of the contract kit."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from arrayferry._dtypes import STANDARD_DTYPES, dtype_info, dtype_named

from .checks import Values

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


class AxisPart(NamedTuple):
    """Part of an axis.

    Attributes:
        cut: the part.
        factor: the length of the axis as a multiple of that of the part.
        more: the number that is added to that length.
        text: the part in Python's syntax.
    """

    cut: slice
    factor: int
    more: int
    text: str


EVERY_SECOND = AxisPart(slice(1, None, 2), 2, 1, "1::2")
BACKWARDS = AxisPart(slice(None, None, -1), 1, 0, "::-1")
INSIDE = AxisPart(slice(1, -1), 1, 2, "1:-1")


def dtypes_of(names: Iterable[str] | None) -> list[np.dtype[Any]]:
    """Return dtypes by their names; for None, those of the standard and a few more of NumPy's."""
    known = [*sorted(STANDARD_DTYPES), *BEYOND] if names is None else sorted(names)
    return [dtype for dtype in map(dtype_named, known) if dtype is not None]


def array_of(values: Values, layout: str) -> str:
    """Describe an array with these values in messages."""
    return f"for an array of dtype {values.dtype.name} and shape {values.shape} {layout}"


def sample(dtype: np.dtype[Any], shape: tuple[int, ...], shift: int = 0) -> Values:
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
def _pattern(dtype: str, size: int) -> Values:
    values = (np.arange(size) % 100 + 1).astype(dtype)
    values.flags.writeable = False
    return values


def numbers(dtype: np.dtype[Any], shape: tuple[int, ...], aligned: bool = True) -> Values:
    """Return a writable array that begins at a multiple of 64 bytes, or one element after one."""
    size = int(np.prod(shape))
    raw = np.empty(size * dtype.itemsize + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + (0 if aligned else dtype.itemsize)
    array: Values = raw[begin : begin + size * dtype.itemsize].view(dtype)
    array[:] = _pattern(dtype.name, size)
    return array.reshape(shape)


def special(dtype: np.dtype[Any]) -> Values:
    """Return numbers that are easily lost: the ends of the range, signed zeros, infinities, NaN."""
    if dtype.kind in "mM":
        whole = np.iinfo(np.int64)
        return np.array([whole.min, whole.max, 0, 1, -1, 1_500_000_007]).view(dtype)  # min is NaT
    kind, limits = dtype_info(dtype)
    if kind == "bool":
        return np.array([True, False])
    if not kind:
        return np.array(["", "a", "abc"]).astype(dtype)
    if kind in ("int", "uint"):
        low, high = int(limits.min), int(limits.max)
        exact = [2**53 + 1, high - 1] if high > 2**53 else []  # float64 cannot represent it
        return np.array([low, high, 0, 1, *exact], object).astype(dtype)
    ends = map(float, (limits.max, limits.min, limits.tiny))
    values: list[Any] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1 / 3, *ends]
    if kind == "complex":
        values += [complex(0.0, -0.0), complex(-0.0, 1), complex(np.inf, -1), complex(1, -np.inf)]
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)


def in_layouts(values: Values, *, more: bool = False) -> Iterator[tuple[str, Values]]:
    """Yield arrays of equal values in other layouts, each in its own memory, with a name for the layout.

    They are writable and have no negative strides.

    Args:
        values: the values.
        more: whether to yield more than one layout of each kind.
    """
    yield "in Fortran order", np.array(values, order="F")
    orders = list(permutations(range(values.ndim)))[1:-1]
    if values.ndim > 3:
        orders = [(1, 0, 3, 2), (3, 1, 0, 2)]
    for order in orders if more else orders[len(orders) // 2 :][:1]:
        laid = np.array(values.transpose(order), order="C").transpose(np.argsort(order))
        yield f"with axes in the order {order} in memory", laid
    *single, whole = axes_of(values)
    for axes in (whole, *single) if more else (whole,):
        around, cut = spread(values, axes, EVERY_SECOND)
        names = "each axis" if axes == whole else f"axis {axes[0]}"
        yield f"strided along {names}", around[cut]
    if more:
        around, cut = spread(values, whole, INSIDE)
        yield "inside a larger array", around[cut]


def reversed_axes(values: Values) -> Iterator[tuple[str, Values]]:
    """Yield arrays of equal values with negative strides."""
    for axes in axes_of(values):
        around, cut = spread(values, axes, BACKWARDS)
        yield f"reversed along the axes {axes}", around[cut]


def axes_of(values: Values) -> list[tuple[int, ...]]:
    """Return each axis alone, and then all together."""
    return [*((n,) for n in range(values.ndim)), tuple(range(values.ndim))]


def spread(
    values: Values, axes: tuple[int, ...], part: AxisPart
) -> tuple[Values, tuple[slice, ...]]:
    """Return an array, and an index that gives these values, by a part of the array along some axes."""
    around = np.zeros(
        [part.factor * n + part.more if i in axes else n for i, n in enumerate(values.shape)],
        values.dtype,
    )
    cut = tuple(part.cut if i in axes else slice(None) for i in range(values.ndim))
    around[cut] = values
    return around, cut


def layouts(dtype: np.dtype[Any]) -> Iterator[tuple[str, Values]]:
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
    odd = dtype.itemsize + 1
    yield "unaligned", np.ndarray((24,), dtype, bytearray(b"x" + base.tobytes()), 1)
    yield "of odd strides", np.ndarray((3,), dtype, bytearray(3 * odd), strides=(odd,))
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", dtype)])["b"]
    read_only = base.copy()
    read_only.flags.writeable = False
    yield "read-only", read_only
    yield "empty", base[:0]
    yield "empty, flipped", base[:0][::-1]
    yield "0-d", np.array(3, dtype)
    yield "a subclass", base.view(np.recarray)
    yield "of rank 12", base.reshape((1,) * 10 + (4, 6))
    for shape in (CUBE, HYPER):
        values = sample(dtype, shape)
        for name, laid in (*in_layouts(values, more=True), *reversed_axes(values)):
            yield f"of shape {shape}, {name},", laid
    for name, laid in in_layouts(np.zeros((2, 0, 3), dtype)):
        yield f"of shape (2, 0, 3), {name},", laid
