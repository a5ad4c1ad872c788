"""The narrowing rule: what happens to an array whose dtype the target lacks.

Kinds never change: an integer stays an integer, unsigned stays unsigned. If the target has dtypes that
hold every value of the source's dtype, the smallest of them is used and nothing is lost. Otherwise the
widest dtype of the kind is used, and with "checked" the values are checked.
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
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "cast_checked",
    "dtype_named",
    "fit_dtype",
    "kind_of",
    "limits_of",
    "narrow_on_device",
    "number_array",
    "target_dtype",
    "unknown_dtypes",
]

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

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    except (ImportError, AttributeError, TypeError):
        return None


def unknown_dtypes(names: Collection[Any]) -> list[str]:
    """Return the names that no dtype of NumPy or `ml_dtypes` has, which need not be installed."""
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
    return module.iinfo(dtype) if kind_of(dtype) in ("int", "uint") else module.finfo(dtype)


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Tell whether every number of the narrow dtype is also one of the wide dtype, of the same kind."""
    if kind_of(narrow) in ("int", "uint"):
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
    found = {"infinity": np.isinf(infinite), "minus zero": np.signbit(minus) and minus == 0}
    found["sign"] = negative < 0
    return frozenset(what for what, held in found.items() if held)


@functools.lru_cache(maxsize=4096)
def _choose(dtype: np.dtype[Any], held: frozenset[str]) -> tuple[Any, bool]:
    """Return the dtype to use, and whether it holds every value of this one; None if there is none.

    A supported dtype is its own choice, in either byte order.
    """
    if dtype.name in held:
        return dtype, True
    kind = kind_of(dtype)
    same = [
        found
        for found in map(dtype_named, sorted(held, key=str))
        if found is not None and kind and kind_of(found) == kind
    ]
    if not same:
        return None, False
    if kind == "bool":
        return same[0], True
    whole = [found for found in same if _holds(found, dtype.newbyteorder("="))]
    if whole:
        return min(whole, key=_smallest), True
    return max(same, key=lambda found: found.itemsize), False


def _smallest(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Sort smaller dtypes first; of equal size, more digits first: float16 before bfloat16."""
    return dtype.itemsize, -getattr(limits_of(dtype), "nmant", 0)


def fit_dtype(x: np.ndarray[Any, Any], target: Backend, narrowing: Narrowing) -> Any:
    """Cast a NumPy array to a dtype that the target has, under the narrowing rule.

    Args:
        x: an array of any shape and dtype.
        target: the backend whose `dtypes` are allowed.
        narrowing: "checked", "forbid" or "allow", as in `arrayferry.convert`.

    Returns:
        `x` itself if its dtype is one that the target has, else a new array of the same shape.

    Raises:
        NarrowingError: the values do not fit, or the dtype may not change.
        UnsupportedDtypeError: the target has no dtype of the kind.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> af.fit_dtype(np.array([1, 2]), af.backends()["jax"], "checked").dtype
        dtype('int32')
    """
    dtype, whole = target_dtype(x.dtype, target, narrowing)
    if dtype is x.dtype or dtype == x.dtype:
        return x
    narrowed, lost = _cast(x, dtype, check=not whole and narrowing != "allow")
    if lost is not None:
        raise _does_not_fit(lost, x.dtype.name, dtype.name, target)
    return narrowed


def _cast(
    x: np.ndarray[Any, Any], dtype: np.dtype[Any], *, check: bool = True
) -> tuple[np.ndarray[Any, Any], str | None]:
    """Cast an array to a dtype of the same kind, and return a number that the dtype does not hold, if there is one."""
    if x.dtype.kind in "iu" and dtype.kind in "iu":
        cast = x.astype(dtype)
        return cast, _changed(x, cast) if check else None
    import numpy as np

    with np.errstate(all="ignore"):
        cast = x.astype(dtype)
        if not check:
            return cast, None
        whole = kind_of(dtype) in ("int", "uint")
        return cast, _changed(x, cast) if whole else _overflowed(x, cast)


def narrow_on_device(
    x: Any, name: str, source: Origin, target: Backend, narrowing: Narrowing
) -> Any:
    """Do the same as `fit_dtype` for an array on a device, by its own library.

    Args:
        x: an array of a library that array-api-compat supports.
        name: the name of its dtype.
        source: its backend.
        target: as for `fit_dtype`.
        narrowing: as for `fit_dtype`.

    Returns:
        A new array of a dtype that the target has; None if the library cannot do it.

    Raises:
        NarrowingError, UnsupportedDtypeError: as for `fit_dtype`.
    """
    import array_api_compat

    own = dtype_named(name)
    if own is None:
        return None
    dtype, whole = target_dtype(own, target, narrowing)
    try:
        xp = array_api_compat.array_namespace(x)
        narrowed = xp.astype(x, getattr(xp, dtype.name))
        culprit = None if whole or narrowing == "allow" else _lost(x, narrowed, own, xp)
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        if source.is_out_of_memory(error):
            raise
        return None
    if culprit is not None:
        raise _does_not_fit(culprit, name, dtype.name, target)
    return narrowed


def _lost(x: Any, narrowed: Any, dtype: np.dtype[Any], xp: Any) -> str | None:
    """Return one of the numbers that a narrower dtype does not hold, None if there is none."""
    if dtype.kind in "iu":
        bad = xp.astype(narrowed, x.dtype) != x
    elif dtype.kind == "c":
        lost = [xp.isfinite(p(x)) & ~xp.isfinite(p(narrowed)) for p in (xp.real, xp.imag)]
        bad = lost[0] | lost[1]
    else:
        bad = xp.isfinite(x) & ~xp.isfinite(narrowed)
    return str(x[bad][0].item()) if bool(xp.any(bad)) else None


def _does_not_fit(number: str, dtype: str, narrowed: str, target: Backend) -> NarrowingError:
    as_it_does = f", as {target.name} does" if is_built_in(target) else ""
    return NarrowingError(
        f"{target.name} has no {dtype} here, and {number} does not fit {narrowed}",
        remedy="Scale the numbers down, or pass "
        f'narrowing="allow" to convert them anyway{as_it_does}.' + _hint(target, dtype),
        dtype=dtype,
        narrowed=narrowed,
    )


def cast_checked(x: np.ndarray[Any, Any], dtype: np.dtype[Any], what: str) -> Any:
    """Cast a NumPy array to a dtype of the same kind.

    Args:
        x: the array.
        dtype: the dtype.
        what: what messages call the array.

    Raises:
        NarrowingError: a number does not fit.
    """
    cast, lost = _cast(x, dtype)
    if lost is not None:
        raise NarrowingError(
            f"{what} holds {lost}, which does not fit {dtype.name}",
            remedy="Ask for a wider dtype.",
            dtype=x.dtype.name,
            narrowed=dtype.name,
        )
    return cast


def number_array(number: Any, target: Backend, narrowing: Narrowing) -> np.ndarray[Any, Any]:
    """Make a 0-d NumPy array of a Python number, with the dtype that the target has by default.

    Raises:
        NarrowingError: the number does not fit that dtype, and `narrowing` is not "allow".
    """
    import numpy as np

    array = np.asarray(number)
    kind = type(number).__name__
    dtype = dtype_named(call_backend(target, "number_dtype", kind)) or array.dtype
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "O":
        raise NarrowingError(
            f"an integer of {number.bit_length()} bits does not fit any dtype",
            remedy='Pass scalars="keep" to leave Python numbers unchanged.',
            dtype="int",
        )
    narrowed, lost = _cast(array, dtype)
    if dtype.kind in "iu":  # an integer beyond it has a dtype of its own, as in NumPy
        return narrowed if lost is None else array
    if lost is not None and narrowing != "allow":
        raise NarrowingError(
            f"the Python number {lost} does not fit {dtype.name}, which is the default of {target.name}",
            remedy='Pass narrowing="allow" to convert it anyway, or scalars="keep" to leave Python '
            "numbers unchanged." + _hint(target, array.dtype.name),
            dtype=array.dtype.name,
            narrowed=dtype.name,
        )
    return narrowed


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
            f'narrowing="checked".' + _hint(target, dtype.name),
            dtype=dtype.name,
            narrowed=chosen.name,
        )
    return chosen, whole


def _names(held: Any, target: Backend) -> frozenset[str]:
    """Return the names of dtypes that a backend gives in whatever way."""
    try:
        return frozenset((held,) if isinstance(held, str) else held)
    except TypeError as error:
        raise ContractError(
            f"dtypes() of the backend {target.name!r} returned a {type(held).__name__}",
            duty='It must return names of dtypes, such as {"float32"}, or None for all of NumPy\'s.',
            method="dtypes",
        ) from error


def _misspelt(target: Backend, held: frozenset[str]) -> list[str]:
    """Return the names among the dtypes of a backend that neither NumPy, `ml_dtypes` nor its library has."""
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
    """Return the name of no dtype that is most like the name of one, "" if none is."""
    import difflib

    near = difflib.get_close_matches(name, unknown_dtypes(held), n=1, cutoff=0.8)
    return near[0] if near else ""


def _tell_misspelt(dtype: np.dtype[Any], target: Backend, held: frozenset[str]) -> None:
    """Warn once if a dtype is narrowed for no other reason than that its name is misspelt."""
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
            f"and nothing that an array of dtype {dtype} could become",
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


def _changed(x: np.ndarray[Any, Any], narrowed: np.ndarray[Any, Any]) -> str | None:
    """Return one of the integers that changed, None if there is none."""
    bad = narrowed != x
    return str(x[bad].flat[0]) if bad.any() else None


def _overflowed(x: np.ndarray[Any, Any], narrowed: np.ndarray[Any, Any]) -> str | None:
    """Return one of the finite numbers that became infinite, None if there is none."""
    import numpy as np

    finite = np.isfinite(narrowed)
    if finite.all():
        return None
    if x.dtype.kind == "c":
        bad = (np.isfinite(x.real) & ~np.isfinite(narrowed.real)) | (
            np.isfinite(x.imag) & ~np.isfinite(narrowed.imag)
        )
    else:
        bad = np.isfinite(x) & ~finite
    return str(x[bad].flat[0]) if bad.any() else None


def _hint(target: Backend, dtype: str) -> str:
    hint = call_backend(target, "dtype_hint", dtype)
    return f" {hint}" if hint else ""
