"""Comparison of arrays for the contract kit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from arrayferry._plugin.backend import STANDARD_DTYPES
from arrayferry._plugin.types import dtype_name

__all__ = ["Values", "difference", "kept", "same", "stated_difference"]

Values = np.ndarray[Any, Any]
_KEEP = (
    "Change from_numpy() so that it leaves its argument as it is: call x.copy() or x.view() first."
)


def same(actual: Any, expected: Any, what: str, fix: str) -> None:
    """Assert that two NumPy arrays have the same shape, dtype and values, bit by bit except for NaN.

    Args:
        actual: what a plugin returned.
        expected: what it should be.
        what: what was done.
        fix: what the author of the plugin can change.
    """
    found = difference(actual, expected)
    assert not found, f"{what}: {found}. {fix}"


@contextlib.contextmanager
def kept(memory: Values, what: str) -> Iterator[None]:
    """Assert that a NumPy array is the same before and after."""
    values, before = memory.copy(), (memory.shape, memory.strides, memory.flags.writeable)
    yield
    same(memory, values, what, _KEEP)
    after = (memory.shape, memory.strides, memory.flags.writeable)
    assert after == before, f"{what}, became read-only, or its shape or strides changed. {_KEEP}"


def difference(actual: Any, expected: Any) -> str:
    """Describe how two NumPy arrays differ, "" if they do not."""
    for name in ("shape", "dtype"):
        ours, theirs = getattr(actual, name), getattr(expected, name)
        if ours != theirs:
            return f"{name} {ours} instead of {theirs}"
    differing = _words(actual) != _words(expected)
    if not differing.any():
        return ""
    wrong = differing.any(axis=1)
    if actual.dtype.kind in "fc":  # NaNs may differ in their bits
        wrong &= ~np.ravel(np.isnan(actual) & np.isnan(expected))
    places = np.flatnonzero(wrong)
    return _first_difference(actual, expected, places) if places.size else ""


def stated_difference(array: Any, values: Values) -> str:
    """Describe how the dtype or the shape that an array states is another one, "" if it is not, or not stated."""
    dtype, shape = dtype_name(getattr(array, "dtype", None)), getattr(array, "shape", None)
    if dtype in STANDARD_DTYPES and dtype != values.dtype.name:
        return f"dtype {dtype} instead of {values.dtype.name}"
    if isinstance(shape, tuple) and shape != values.shape:
        return f"shape {shape} instead of {values.shape}"
    return ""


def _words(x: Any) -> Any:
    """Return the bits of each element, as one or more whole numbers."""
    size = next(size for size in (8, 4, 2, 1) if x.itemsize % size == 0)
    return np.ascontiguousarray(x).reshape(x.size, 1).view(f"u{size}")


def _first_difference(ours: Any, theirs: Any, places: Any) -> str:
    index = ", ".join(str(int(i)) for i in np.unravel_index(places[0], ours.shape))
    where = f"at [{index}]" if index else "in its only element"
    count = f" ({len(places)} of {ours.size} elements differ)" if ours.size > 1 else ""
    return f"{ours.ravel()[places[0]]} instead of {theirs.ravel()[places[0]]} {where}{count}"
