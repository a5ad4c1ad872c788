"""Dtypes by name, and the dtype that an array gets where the target lacks its own.

Kinds never change: an integer stays an integer, and an unsigned one stays unsigned. If the target has dtypes that
hold every value of the source's dtype, the smallest of them is used and nothing is lost. Otherwise the
widest dtype of the kind is used, and `narrowing.py` says what happens to values that do not fit.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from arrayferry._errors import (
    ContractError,
    NarrowingError,
    PluginWarning,
    UnsupportedDtypeError,
)
from arrayferry._options import Narrowing
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend

if TYPE_CHECKING:
    import numpy as np


__all__ = ["dtype_kind", "dtype_named", "hint_for", "limits_of", "target_dtype", "unknown_dtypes"]


_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


_WHAT = {
    "b": "bools",
    "U": "text",
    "S": "bytes",
    "M": "dates",
    "m": "time spans",
    "V": "records",
    "O": "objects",
    "T": "text",
}


def dtype_kind(dtype: np.dtype[Any]) -> str:
    """Return the kind of a dtype: "bool", "int", "uint", "float", "complex", or "" for no number."""
    kind = _NUMPY_KINDS.get(dtype.kind)
    if kind is None and dtype.type.__module__ == "ml_dtypes":
        name = dtype.name
        return "uint" if name.startswith("uint") else "int" if name.startswith("int") else "float"
    return kind or ""


@functools.cache
def dtype_named(name: str) -> np.dtype[Any] | None:
    """Find a dtype by its name in NumPy or `ml_dtypes`, None if there is none here."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    except (ImportError, AttributeError, TypeError):
        return None


def unknown_dtypes(names: Collection[Any]) -> list[str]:
    """Return the names that belong to no dtype of NumPy or of `ml_dtypes`, which need not be installed."""
    own = ("bfloat", "float8", "float6", "float4", "int2", "int4", "uint2", "uint4")
    return sorted(
        str(name) for name in names if not str(name).startswith(own) and dtype_named(name) is None
    )


def limits_of(dtype: np.dtype[Any]) -> Any:
    """Return `iinfo` or `finfo` of a dtype, also for those of `ml_dtypes`."""
    import numpy as np

    own = dtype.type.__module__ == "ml_dtypes"
    module: Any = np
    if own:
        import ml_dtypes

        module = ml_dtypes
    return module.iinfo(dtype) if dtype_kind(dtype) in ("int", "uint") else module.finfo(dtype)


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Tell whether every number of the narrow dtype is also one of the wide dtype. Both are of the same kind."""
    if dtype_kind(narrow) in ("int", "uint"):
        w, n = limits_of(wide), limits_of(narrow)
        return bool(int(w.min) <= int(n.min) and int(w.max) >= int(n.max))
    w, n = limits_of(wide), limits_of(narrow)
    digits = w.nmant >= n.nmant and w.maxexp >= n.maxexp and w.minexp <= n.minexp
    return bool(digits and _special_values(wide) >= _special_values(narrow))


def _special_values(dtype: np.dtype[Any]) -> frozenset[str]:
    """Return which special values a floating-point dtype has."""
    import numpy as np

    with np.errstate(all="ignore"):
        minus, infinite, negative = np.array([-0.0, np.inf, -1.0]).astype(dtype)
    present = {"infinity": np.isinf(infinite), "minus zero": np.signbit(minus) and minus == 0}
    present["sign"] = negative < 0
    return frozenset(what for what, held in present.items() if held)


@functools.lru_cache(maxsize=4096)
def _choose(dtype: np.dtype[Any], held: frozenset[str]) -> tuple[Any, bool]:
    """Return the dtype to use, and whether it holds every value of this one; None if there is none.

    A supported dtype is its own choice, in either byte order.
    """
    if dtype.name in held:
        return dtype, True
    kind = dtype_kind(dtype)
    same = [
        candidate
        for candidate in map(dtype_named, sorted(held, key=str))
        if candidate is not None and kind and dtype_kind(candidate) == kind
    ]
    if not same:
        return None, False
    if kind == "bool":
        return same[0], True
    whole = [candidate for candidate in same if _holds(candidate, dtype.newbyteorder("="))]
    if whole:
        return min(whole, key=_smallest), True
    return max(same, key=lambda candidate: candidate.itemsize), False


def _smallest(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Sort smaller dtypes first; of equal size, more digits first: float16 before bfloat16."""
    return dtype.itemsize, -getattr(limits_of(dtype), "nmant", 0)


def target_dtype(
    dtype: np.dtype[Any], target: Backend, narrowing: Narrowing
) -> tuple[np.dtype[Any], bool]:
    """Choose the dtype of the result, before any value is known.

    Returns:
        The dtype, and whether it has every value of the source's dtype.

    Raises:
        NarrowingError: `narrowing` is "forbid", and the dtype would change.
        UnsupportedDtypeError: the target has no dtype of the kind.
    """
    held = call_backend(target, "dtypes")
    if held is None:
        return dtype, True
    if type(held) is not frozenset:
        held = _names(held, target)
    chosen, whole = _choose(dtype, held)
    if chosen is None:
        raise _unsupported(dtype, target, held)
    if chosen is not dtype:
        _tell_misspelt(dtype, target, held)
    if narrowing == "forbid" and chosen != dtype:
        raise NarrowingError(
            f"{target.name} has no {dtype.name} here, and narrowing to {chosen.name} is forbidden",
            remedy=f"Convert the array to a dtype of {target.name} first, or pass "
            f'narrowing="checked".' + hint_for(target, dtype.name),
            dtype=dtype.name,
            narrowed=chosen.name,
        )
    return chosen, whole


def _names(held: Any, target: Backend) -> frozenset[str]:
    """Return the names of a backend's dtypes, in whatever form it gives them."""
    try:
        return frozenset((held,) if isinstance(held, str) else held)
    except TypeError as error:
        raise ContractError(
            f"dtypes() of the backend {target.name!r} returned a {type(held).__name__}",
            duty='It must return names of dtypes, such as {"float32"}, or None for all of NumPy\'s.',
            method="dtypes",
        ) from error


def _misspelt(target: Backend, held: frozenset[str]) -> list[str]:
    """Return the names among a backend's dtypes that belong to none of NumPy, `ml_dtypes` or its own library."""
    library = sys.modules.get(target.namespace or target.package)
    return [name for name in unknown_dtypes(held) if not hasattr(library, name)]


@functools.lru_cache(maxsize=256)
def _told(target: str, name: str, misspelt: str) -> None:
    warnings.warn(
        f"dtypes() of the backend {target!r} names {misspelt!r}, which no dtype has, so {name} counts as missing",
        PluginWarning,
        stacklevel=2,
    )


@functools.lru_cache(maxsize=256)
def _nearest(name: str, held: frozenset[str]) -> str:
    """Return the name that belongs to no dtype and is closest to the name of a given one, "" if none is."""
    import difflib

    near = difflib.get_close_matches(name, unknown_dtypes(held), n=1, cutoff=0.8)
    return near[0] if near else ""


def _tell_misspelt(dtype: np.dtype[Any], target: Backend, held: frozenset[str]) -> None:
    """Warn once if a dtype is narrowed only because its name is misspelt."""
    near = _nearest(dtype.name, held)
    if near and near in _misspelt(target, held):
        _told(target.name, dtype.name, near)


def _unsupported(
    dtype: np.dtype[Any], target: Backend, held: frozenset[str]
) -> UnsupportedDtypeError:
    misspelt = _misspelt(target, held)
    if misspelt:
        return UnsupportedDtypeError(
            f"dtypes() of the backend {target.name!r} names {', '.join(map(repr, misspelt[:3]))}, which no dtype has, "
            f"and no dtype that an array of dtype {dtype} could be converted to",
            remedy='Report this to the author of the plugin, or pass unsupported="keep" to leave such arrays unchanged.',
            dtype=str(dtype),
        )
    what = _WHAT.get(dtype.kind, "numbers of that kind")
    if dtype.type.__module__ == "ml_dtypes":
        what = f"{dtype.name} or anything that can represent it"
    return UnsupportedDtypeError(
        f"{target.name} has no dtype for {what} (an array of dtype {dtype})",
        remedy='Pass unsupported="keep" to leave such arrays unchanged.',
        dtype=str(dtype),
    )


def hint_for(target: Backend, dtype: str) -> str:
    """Return how the user can make the target have a dtype, as a sentence after a space; "" if nothing."""
    hint = call_backend(target, "dtype_hint", dtype)
    return f" {hint}" if hint else ""
