"""The narrowing rule: what becomes of an array whose dtype the target lacks.

Kinds never change: an integer stays an integer, unsigned stays unsigned. Where the target has a
dtype that holds every value of the source's, the smallest such is taken and nothing is lost.
Otherwise the widest of the kind is taken, and under "checked" the values are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ._errors import NarrowingError, UnsupportedDtypeError

if TYPE_CHECKING:
    import numpy as np

    from ._backend import Backend
    from ._options import Narrowing

__all__ = ["dtype_named", "fit", "kind_of", "limits_of"]

_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_WHAT = {
    "U": "text",
    "S": "bytes",
    "M": "dates",
    "m": "time spans",
    "V": "records",
    "O": "objects",
    "T": "text",
}


def kind_of(dtype: np.dtype[Any]) -> str:
    """Name the kind of a dtype: "bool", "int", "uint", "float", "complex", or "" for no number."""
    kind = _NUMPY_KINDS.get(dtype.kind)
    if kind is None and dtype.type.__module__ == "ml_dtypes":
        name = dtype.name
        return "uint" if name.startswith("uint") else "int" if name.startswith("int") else "float"
    return kind or ""


@functools.cache
def dtype_named(name: str) -> np.dtype[Any] | None:
    """Find a dtype by the name that NumPy or `ml_dtypes` gives it, None if there is none here."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    except (ImportError, AttributeError, TypeError):
        return None


def limits_of(dtype: np.dtype[Any]) -> Any:
    """`iinfo` or `finfo` of a dtype, those of `ml_dtypes` as well."""
    import numpy as np

    own = dtype.type.__module__ == "ml_dtypes"
    module: Any = np
    if own:
        import ml_dtypes

        module = ml_dtypes
    return module.iinfo(dtype) if kind_of(dtype) in ("int", "uint") else module.finfo(dtype)


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether every number of one dtype is also one of another of the same kind."""
    if kind_of(narrow) in ("int", "uint"):
        w, n = limits_of(wide), limits_of(narrow)
        return bool(int(w.min) <= int(n.min) and int(w.max) >= int(n.max))
    w, n = limits_of(wide), limits_of(narrow)
    digits = w.nmant >= n.nmant and w.maxexp >= n.maxexp and w.minexp <= n.minexp
    return bool(digits and _peculiarities(wide) >= _peculiarities(narrow))


def _peculiarities(dtype: np.dtype[Any]) -> frozenset[str]:
    """What a floating-point dtype can hold besides numbers with a point."""
    import numpy as np

    with np.errstate(all="ignore"):
        minus, infinite, negative = np.array([-0.0, np.inf, -1.0]).astype(dtype)
    found = {"infinity": np.isinf(infinite), "minus zero": np.signbit(minus) and minus == 0}
    found["sign"] = negative < 0
    return frozenset(what for what, held in found.items() if held)


@functools.lru_cache(maxsize=4096)
def _choose(dtype: np.dtype[Any], held: frozenset[str]) -> tuple[Any, bool]:
    """The dtype to use in place of one that is not held, and whether it holds every value."""
    kind = kind_of(dtype)
    same = [
        found
        for found in map(dtype_named, sorted(held))
        if found is not None and kind and kind_of(found) == kind
    ]
    if not same:
        return None, False
    if kind == "bool":
        return same[0], True
    whole = [found for found in same if _holds(found, dtype)]
    if whole:
        return min(whole, key=_smallest), True
    return max(same, key=lambda found: found.itemsize), False


def _smallest(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Smaller first; of equal size, more digits first: float16 before bfloat16."""
    return dtype.itemsize, -getattr(limits_of(dtype), "nmant", 0)


def fit(x: np.ndarray[Any, Any], target: Backend, narrowing: Narrowing) -> np.ndarray[Any, Any]:
    """Give an array that has a dtype of the target: `x` itself where that is so already.

    Raises:
        NarrowingError: the values do not fit, or no change was allowed.
        UnsupportedDtypeError: the target has no dtype of the kind.
    """
    held: Collection[str] | None = target.dtypes()
    if held is None:
        return x
    name = x.dtype.name
    if name in held:
        return x
    dtype, whole = None, False
    if kind_of(x.dtype):
        dtype, whole = _choose(x.dtype.newbyteorder("="), frozenset(held))
    if dtype is None:
        what = _WHAT.get(x.dtype.kind, "numbers of that kind")
        if x.dtype.type.__module__ == "ml_dtypes":
            what = f"{name} or anything that can hold it"
        raise UnsupportedDtypeError(
            f"{target.name} has no dtype for {what} (an array of dtype {x.dtype})",
            remedy='Pass unsupported="keep" to leave such arrays as they are.',
            dtype=str(x.dtype),
        )
    if narrowing == "forbid":
        raise NarrowingError(
            f"{target.name} has no {name} here, and narrowing to {dtype.name} is forbidden",
            remedy=f'Convert the array to a dtype of {target.name} first, or pass narrowing="checked".'
            + _hint(target, name),
            dtype=name,
            narrowed=dtype.name,
        )
    import numpy as np

    with np.errstate(all="ignore"):
        narrowed = x.astype(dtype)
        if not whole and narrowing == "checked":
            culprit = _lost(x, narrowed, kind_of(dtype))
            if culprit is not None:
                raise NarrowingError(
                    f"{target.name} has no {name} here, and {culprit} does not fit {dtype.name}",
                    remedy="Scale the numbers down, or pass "
                    f'narrowing="allow" to lose them as {target.name} would.' + _hint(target, name),
                    dtype=name,
                    narrowed=dtype.name,
                )
    return narrowed


def _lost(x: np.ndarray[Any, Any], narrowed: np.ndarray[Any, Any], kind: str) -> object | None:
    """One of the numbers that did not survive: an integer that changed, a finite one that grew infinite."""
    import numpy as np

    if kind in ("int", "uint"):
        bad = narrowed != x
    elif kind == "complex":
        bad = (np.isfinite(x.real) & ~np.isfinite(narrowed.real)) | (
            np.isfinite(x.imag) & ~np.isfinite(narrowed.imag)
        )
    else:
        bad = np.isfinite(x) & ~np.isfinite(narrowed)
    return str(x[bad].flat[0]) if bad.any() else None


def _hint(target: Backend, dtype: str) -> str:
    hint = target.dtype_hint(dtype)
    return f" {hint}" if hint else ""
