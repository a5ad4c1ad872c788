"""Narrowing: arrays are cast to dtypes that hold fewer numbers, and a number that does not fit is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry._errors import (
    NarrowingError,
)
from arrayferry._options import Narrowing
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in

if TYPE_CHECKING:
    import numpy as np
from .dtypes import dtype_kind, dtype_named, hint_for, target_dtype

__all__ = ["cast_checked", "fit_dtype", "narrow_on_device", "number_array"]


def fit_dtype(x: np.ndarray[Any, Any], target: Backend, narrowing: Narrowing) -> Any:
    """Cast a NumPy array to a dtype that the target has, under the narrowing rule.

    Args:
        x: an array of any shape and dtype.
        target: the backend whose `dtypes` are allowed.
        narrowing: "checked", "forbid" or "allow", as in `arrayferry.convert`.

    Returns:
        `x` itself if the target has its dtype, otherwise a new array of the same shape.

    Raises:
        NarrowingError: the values do not fit, or the dtype may not change.
        UnsupportedDtypeError: the target has no dtype of the same kind.

    Examples:
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
        whole = dtype_kind(dtype) in ("int", "uint")
        return cast, _changed(x, cast) if whole else _overflowed(x, cast)


def narrow_on_device(
    x: Any, name: str, source: Origin, target: Backend, narrowing: Narrowing
) -> Any:
    """Do the same as `fit_dtype` for an array on a device, with its own library.

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
        f'narrowing="allow" to convert them anyway{as_it_does}.' + hint_for(target, dtype),
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
    if dtype.kind in "iu":  # an integer that does not fit gets a wider dtype, as in NumPy
        return narrowed if lost is None else array
    if lost is not None and narrowing != "allow":
        raise NarrowingError(
            f"the Python number {lost} does not fit {dtype.name}, which is the default of {target.name}",
            remedy='Pass narrowing="allow" to convert it anyway, or scalars="keep" to leave Python '
            "numbers unchanged." + hint_for(target, array.dtype.name),
            dtype=array.dtype.name,
            narrowed=dtype.name,
        )
    return narrowed


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
