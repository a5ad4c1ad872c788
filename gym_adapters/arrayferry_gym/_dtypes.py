"""Names of dtypes, and casts between them."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af


def plain_name(dtype: Any) -> str:
    """Return the name of a dtype of any library, without that of the library."""
    return str(dtype).rpartition(".")[2]


def held_dtype(dtype: Any, backend: af.Backend) -> str:
    """Return the name of the dtype that a library has for one of NumPy."""
    return str(af.fit_dtype(np.zeros((), dtype), backend, "allow").dtype.name)


def cast_numbers(x: Any, dtype: np.dtype[Any]) -> Any:
    """Cast a NumPy array to another dtype. Floats may be rounded, whole numbers must stay the same.

    Raises:
        ValueError: a number does not fit, or the kinds do not. The text tells why.
    """
    kind = "f" if x.dtype.type.__module__ == "ml_dtypes" else x.dtype.kind
    if kind not in "biuf" and not kind == dtype.kind == "c":
        raise ValueError("its dtype is of another kind")
    with np.errstate(all="ignore"):
        cast = x.astype(dtype)
        if kind in "fc" and dtype.kind in "fc":
            finite = np.isfinite(cast)
            if finite.all():
                return cast
            fits = finite | ~np.isfinite(x)
        else:
            fits = cast == x
            if kind in "iu" and dtype.kind in "fc":  # compared as floats, which may be too coarse
                fits &= cast.real.astype(x.dtype) == x
    if not fits.all():
        raise ValueError(f"{culprit(x, ~fits)} is no {dtype}")
    return cast


def culprit(x: Any, wrong: Any) -> str:
    """Describe the first wrong number of an array: its value and its place."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f", at {list(index)}," if index else ""
    return f"{x[index]}{place}"
