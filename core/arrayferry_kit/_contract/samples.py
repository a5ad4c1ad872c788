"""NumPy arrays of many dtypes, shapes and layouts, for the tests of the contract kit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import permutations
from operator import itemgetter
from typing import Any

import numpy as np

from arrayferry import STANDARD_DTYPES
from arrayferry.extending import dtype_info, dtype_named
from arrayferry.typing import AnyArray

from .checks import Values

CUBE = (2, 3, 4)
"""The shape of the three-dimensional arrays that are tried in different layouts."""
HYPER = (2, 3, 2, 3)
"""The shape of the four-dimensional arrays that are tried in different layouts, in fewer tests than `CUBE`."""
Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = ((), (2, 3), CUBE, (1,), (5,), (0,), (3, 0, 2), (2, 1, 3), (2, 3, 1, 2))
SIZES = (1, 16, 1024, 16 * 1024, 256 * 1024, 1024 * 1024)
"""The sizes of arrays to try, in elements: 4 bytes to 4 MiB of float32. Libraries may treat sizes differently."""
LARGE = 4 * 1024 * 1024
"""The number of elements of the largest array, 16 MiB of float32."""
BEYOND = ("datetime64[ns]", "datetime64[D]", "timedelta64[us]", "U3", "S3")
"""Dtypes outside the standard, for a library that has all dtypes of NumPy."""
PARTS = {
    "strided": (slice(1, None, 2), 2, 1),
    "inside a larger array": (slice(1, -1), 1, 2),
    "reversed": (slice(None, None, -1), 1, 0),
}
"""For each memory layout, a slice and two numbers `a` and `b`. The slice selects `n` of `a * n + b` elements."""


def dtypes_of(names: Iterable[str] | None) -> list[np.dtype[Any]]:
    """Return the dtypes with these names, in order of name. None stands for the standard dtypes and `BEYOND`."""
    dtype_names = [*sorted(STANDARD_DTYPES), *BEYOND] if names is None else sorted(names)
    return [dtype for dtype in map(dtype_named, dtype_names) if dtype is not None]


def case_of(values: Values, *details: str) -> str:
    """Return a description of an array with these values, for messages."""
    text = f"an array of dtype {values.dtype.name} and shape {values.shape}"
    return ", ".join([text, *details])


def sample(dtype: np.dtype[Any], shape: Shape, shift: int = 0) -> Values:
    """Return an array of small numbers without a regular pattern, so that tests notice if its axes are permuted.

    Args:
        dtype: the dtype of the array.
        shape: the shape of the array.
        shift: selects the numbers. Arrays with different shifts have different numbers.
    """
    indices = np.arange(int(np.prod(shape))).reshape(shape)
    values: Any = (indices + 11 + 5 * shift) * 40_503 % 65_537 % 5
    if dtype.kind in "mM":
        values = values * 1_000_000_007 - 2  # so large that a smaller unit of time overflows
        return np.asarray(values.astype(np.int64)).view(dtype)
    if dtype.kind in "ifc":
        values = values - 2
    if dtype.kind == "c":
        values = values * np.asarray(1 - 2j)
    return np.asarray(np.asarray(values).astype(dtype))


def numbers(dtype: np.dtype[Any], shape: Shape, aligned: bool = True) -> Values:
    """Return a writable array. Its address is a multiple of 64 bytes, plus one element if not `aligned`."""
    size = int(np.prod(shape))
    raw_bytes = np.empty(size * dtype.itemsize + 128, np.uint8)
    first_byte = -raw_bytes.ctypes.data % 64 + (0 if aligned else dtype.itemsize)
    array: Values = raw_bytes[first_byte : first_byte + size * dtype.itemsize].view(dtype)
    array[:] = np.tile(np.arange(1, 101).astype(dtype), size // 100 + 1)[:size]
    return array.reshape(shape)


def special(dtype: np.dtype[Any]) -> Values:
    """Return numbers that a faulty conversion may change: the limits of the dtype, signed zeros, infinities, NaN."""
    if dtype.kind in "mM":
        int64_info = np.iinfo(np.int64)
        # NaT is stored as the smallest integer
        return np.array([int64_info.min, int64_info.max, 0, 1, -1, 1_500_000_007]).view(dtype)
    kind, limits = dtype_info(dtype)
    if kind == "bool":
        return np.array([True, False])
    if not kind:
        return np.array(["", "a", "abc"]).astype(dtype)
    if kind in ("int", "uint"):
        low, high = int(limits.min), int(limits.max)
        large = [2**53 + 1, high - 1] if high > 2**53 else []  # float64 cannot represent 2**53 + 1
        return np.array([low, high, 0, 1, *large], object).astype(dtype)
    limit_numbers = map(float, (limits.max, limits.min, limits.tiny))
    values: list[Any] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1 / 3, *limit_numbers]
    if kind == "complex":
        values += [complex(0.0, -0.0), complex(-0.0, 1), complex(np.inf, -1), complex(1, -np.inf)]
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)


def views(values: Values) -> Iterator[tuple[str, Values, Callable[[Any], Any]]]:
    """For each layout, yield its name, an array, and a function. The function returns a view of the array.

    The view has the layout and these values.
    """
    axes = tuple(range(values.ndim))
    for axis_order in reversed(list(permutations(axes))[1:]):
        name = f"with axes in the order {axis_order} in memory"
        view_of = partial(_transposed, axes=[int(n) for n in np.argsort(axis_order)])
        base = np.array(values.transpose(axis_order), order="C")
        yield "in Fortran order" if axis_order == axes[::-1] else name, base, view_of
    for name, (cut_slice, factor, extra) in PARTS.items():
        for cut_axes in (axes, *((axis,) for axis in axes)):
            shape = [factor * n + extra if i in cut_axes else n for i, n in enumerate(values.shape)]
            slices = tuple(cut_slice if axis in cut_axes else slice(None) for axis in axes)
            base = np.zeros(shape, values.dtype)
            base[slices] = values
            yield f"{name} along the axes {cut_axes}", base, itemgetter(slices)


def _transposed(x: AnyArray, axes: list[int]) -> Any:
    return (x.permute if hasattr(x, "permute") else x.transpose)(*axes)


def broadcast(x: AnyArray, shape: Shape) -> Any:
    """Return a view of this shape, in which axes of length 1 are repeated by a stride of 0.

    A view of a NumPy array is writable.
    """
    if not isinstance(x, np.ndarray):
        return x.expand(shape) if hasattr(x, "expand") else x.broadcast_to(shape)
    strides = [stride if n > 1 else 0 for n, stride in zip(x.shape, x.strides, strict=True)]
    void_view = x.view(f"V{x.itemsize}")  # as_strided fails with dtypes of ml_dtypes
    return np.lib.stride_tricks.as_strided(void_view, shape, strides).view(x.dtype)


def in_layouts(values: Values) -> Iterator[tuple[str, Values]]:
    """For each layout without negative strides, yield its name and a writable array that has these values.

    The arrays share no memory with each other or with `values`.
    """
    named_arrays = ((name, view_of(base)) for name, base, view_of in views(values))
    return ((name, x) for name, x in named_arrays if min(x.strides) >= 0)


def odd_layouts(dtype: np.dtype[Any]) -> Iterator[tuple[str, Values]]:
    """Yield names of unusual layouts, such as unaligned or read-only, each with a NumPy array of this layout."""
    base_array = np.arange(24).astype(dtype).reshape(4, 6)
    read_only_copy = base_array.copy()
    read_only_copy.flags.writeable = False
    yield "broadcast", np.broadcast_to(base_array[0], (3, 6))
    yield "big-endian", base_array.astype(dtype.newbyteorder(">"))
    yield "unaligned", np.ndarray((24,), dtype, bytearray(b"x" + base_array.tobytes()), 1)
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", dtype)])["b"]
    yield "read-only", read_only_copy
    yield "a subclass", base_array.view(np.recarray)
    yield "of rank 12", base_array.reshape((1,) * 10 + (4, 6))
    for shape in (CUBE, HYPER, (2, 0, 3)):
        yield from ((name, view_of(base)) for name, base, view_of in views(sample(dtype, shape)))
