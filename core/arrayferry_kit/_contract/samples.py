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
    index = np.arange(int(np.prod(shape))).reshape(shape)
    values: Any = (index + 11 + 5 * shift) * 40_503 % 65_537 % 5
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
    raw = np.empty(size * dtype.itemsize + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + (0 if aligned else dtype.itemsize)
    array: Values = raw[begin : begin + size * dtype.itemsize].view(dtype)
    array[:] = np.tile(np.arange(1, 101).astype(dtype), size // 100 + 1)[:size]
    return array.reshape(shape)


def special(dtype: np.dtype[Any]) -> Values:
    """Return numbers that a faulty conversion may change: the limits of the dtype, signed zeros, infinities, NaN."""
    if dtype.kind in "mM":
        whole = np.iinfo(np.int64)
        # NaT is stored as the smallest integer
        return np.array([whole.min, whole.max, 0, 1, -1, 1_500_000_007]).view(dtype)
    kind, limits = dtype_info(dtype)
    if kind == "bool":
        return np.array([True, False])
    if not kind:
        return np.array(["", "a", "abc"]).astype(dtype)
    if kind in ("int", "uint"):
        low, high = int(limits.min), int(limits.max)
        exact = [2**53 + 1, high - 1] if high > 2**53 else []  # float64 cannot represent 2**53 + 1
        return np.array([low, high, 0, 1, *exact], object).astype(dtype)
    ends = map(float, (limits.max, limits.min, limits.tiny))
    values: list[Any] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1 / 3, *ends]
    if kind == "complex":
        values += [complex(0.0, -0.0), complex(-0.0, 1), complex(np.inf, -1), complex(1, -np.inf)]
    with np.errstate(all="ignore"):
        return np.array(values).astype(dtype)


def views(values: Values) -> Iterator[tuple[str, Values, Callable[[Any], Any]]]:
    """For each layout, yield its name, an array, and a function. The function returns a view of the array.

    The view has the layout and these values.
    """
    axes = tuple(range(values.ndim))
    for order in reversed(list(permutations(axes))[1:]):
        name = f"with axes in the order {order} in memory"
        view = partial(_transposed, axes=[int(n) for n in np.argsort(order)])
        whole = np.array(values.transpose(order), order="C")
        yield "in Fortran order" if order == axes[::-1] else name, whole, view
    for name, (cut, factor, more) in PARTS.items():
        for chosen in (axes, *((axis,) for axis in axes)):
            shape = [factor * n + more if i in chosen else n for i, n in enumerate(values.shape)]
            index = tuple(cut if axis in chosen else slice(None) for axis in axes)
            whole = np.zeros(shape, values.dtype)
            whole[index] = values
            yield f"{name} along the axes {chosen}", whole, itemgetter(index)


def _transposed(x: AnyArray, axes: list[int]) -> Any:
    return (x.permute if hasattr(x, "permute") else x.transpose)(*axes)


def broadcast(x: AnyArray, shape: Shape) -> Any:
    """Return a view of this shape, in which axes of length 1 are repeated by a stride of 0.

    A view of a NumPy array is writable.
    """
    if not isinstance(x, np.ndarray):
        return x.expand(shape) if hasattr(x, "expand") else x.broadcast_to(shape)
    strides = [step if n > 1 else 0 for n, step in zip(x.shape, x.strides, strict=True)]
    bits = x.view(f"V{x.itemsize}")  # as_strided fails with dtypes of ml_dtypes
    return np.lib.stride_tricks.as_strided(bits, shape, strides).view(x.dtype)


def in_layouts(values: Values) -> Iterator[tuple[str, Values]]:
    """For each layout without negative strides, yield its name and a writable array that has these values.

    The arrays share no memory with each other or with `values`.
    """
    laid = ((name, view(whole)) for name, whole, view in views(values))
    return ((name, x) for name, x in laid if min(x.strides) >= 0)


def odd_layouts(dtype: np.dtype[Any]) -> Iterator[tuple[str, Values]]:
    """Yield names of unusual layouts, such as unaligned or read-only, each with a NumPy array of this layout."""
    base = np.arange(24).astype(dtype).reshape(4, 6)
    read_only = base.copy()
    read_only.flags.writeable = False
    yield "broadcast", np.broadcast_to(base[0], (3, 6))
    yield "big-endian", base.astype(dtype.newbyteorder(">"))
    yield "unaligned", np.ndarray((24,), dtype, bytearray(b"x" + base.tobytes()), 1)
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", dtype)])["b"]
    yield "read-only", read_only
    yield "a subclass", base.view(np.recarray)
    yield "of rank 12", base.reshape((1,) * 10 + (4, 6))
    for shape in (CUBE, HYPER, (2, 0, 3)):
        yield from ((name, view(whole)) for name, whole, view in views(sample(dtype, shape)))
