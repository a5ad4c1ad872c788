"""Comparison of arrays, and names of types, for the messages of the contract kit."""

from __future__ import annotations

from typing import Any

__all__ = ["describe_type", "describe_value", "same"]


def same(actual: Any, expected: Any, what: str, fix: str = "") -> None:
    """Assert that two NumPy arrays have the same shape, dtype and values, bit by bit except for NaN.

    Args:
        actual: what a plugin returned.
        expected: what it should be.
        what: what was done.
        fix: what the author of the plugin can change.
    """
    import numpy as np

    fix = f". {fix.removesuffix('.')}" if fix else ""
    assert actual.shape == expected.shape, (
        f"{what}: shape {actual.shape} instead of {expected.shape}{fix}"
    )
    assert actual.dtype == expected.dtype, (
        f"{what}: dtype {actual.dtype} instead of {expected.dtype}{fix}"
    )
    if _have_equal_bits(actual, expected):
        return
    ours, theirs = np.array(actual), np.array(expected)
    equal = ours.tobytes() == theirs.tobytes()
    if not equal and ours.dtype.kind in "fc":  # NaNs may differ in their bits
        nan = np.isnan(theirs)
        equal = (
            bool((np.isnan(ours) == nan).all()) and ours[~nan].tobytes() == theirs[~nan].tobytes()
        )
    if not equal:
        raise AssertionError(f"{what}: {_first_difference(ours, theirs)}{fix}")


def _have_equal_bits(a: Any, b: Any) -> bool:
    """Tell quickly whether two arrays of one shape and dtype are equal bit by bit; False if that takes a copy."""
    whole = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}.get(a.itemsize)
    if whole is None or a.dtype.hasobject or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    return bool((a.view(whole) == b.view(whole)).all())


def _first_difference(ours: Any, theirs: Any) -> str:
    import numpy as np

    bits = [
        np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1)
        for x in (ours, theirs)
    ]
    differing = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    first = differing[0]
    index = ", ".join(str(int(i)) for i in np.unravel_index(first, ours.shape))
    where = f"at [{index}]" if index else "in its only element"
    count = f" ({len(differing)} of {ours.size} elements differ)" if ours.size > 1 else ""
    return f"{ours.ravel()[first]} instead of {theirs.ravel()[first]} {where}{count}"


def describe_value(value: Any) -> str:
    """Describe an object by its type: "an aslib.Array", "None"."""
    if value is None:
        return "None"
    name = describe_type(value)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def describe_type(value: Any) -> str:
    """Return the shortest dotted path by which the type of a value can be imported."""
    import sys

    cls = type(value)
    top = sys.modules.get(cls.__module__.partition(".")[0])
    if getattr(top, cls.__qualname__, None) is cls and top is not None:
        return f"{top.__name__}.{cls.__qualname__}".removeprefix("builtins.")
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
