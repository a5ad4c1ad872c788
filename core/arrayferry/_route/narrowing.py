"""Narrowing: casts of arrays to dtypes of smaller range. By default, a number that does not fit raises an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry._dtypes import dtype_info, dtype_named
from arrayferry._errors import NarrowingError
from arrayferry._options import Narrowing
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, is_out_of_memory, wrong_result
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in

if TYPE_CHECKING:
    import numpy as np
from arrayferry._types import AnyArray

from .dtypes import hint_for, target_dtype


def fit_dtype(x: np.ndarray[Any, Any], target: Backend, narrowing: Narrowing) -> Any:
    """Cast a NumPy array to a dtype that the target has, as the option `narrowing` says.

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
    dtype, must_check = target_dtype(x.dtype, target, narrowing)
    if dtype == x.dtype:
        return x
    narrowed, lost_number = _cast(x, dtype, check=must_check)
    if lost_number is not None:
        raise _does_not_fit(lost_number, x.dtype.name, dtype.name, target)
    return narrowed


def _cast(
    x: np.ndarray[Any, Any], dtype: np.dtype[Any], *, check: bool = True
) -> tuple[np.ndarray[Any, Any], Any]:
    """Cast an array to a dtype of its kind. Return the result, and a number that does not fit the dtype, or None."""
    import numpy as np

    dtype_kind = dtype_info(dtype).kind
    if dtype_kind in ("int", "uint"):
        cast = x.astype(dtype)
        if not check or (cast == x).all():
            return cast, None
    else:
        with np.errstate(all="ignore"):
            cast = x.astype(dtype)
        # counting the finite numbers is faster than `all()`
        if not check or np.count_nonzero(np.isfinite(cast)) == cast.size:
            return cast, None
    return cast, _lost(x, cast, dtype_kind)


def narrow_on_device(
    x: AnyArray, name: str, source: Origin, target: Backend, narrowing: Narrowing
) -> Any:
    """Cast an array with its own library, which leaves the array on its device. The rule is that of `fit_dtype`.

    Args:
        x: an array of a library that array-api-compat supports.
        name: the name of the dtype of the array.
        source: the backend of the array.
        target: the backend whose `dtypes` are allowed.
        narrowing: "checked", "forbid" or "allow".

    Returns:
        A new array of a dtype that the target has, or None if the library cannot cast it.

    Raises:
        NarrowingError, UnsupportedDtypeError: as for `fit_dtype`.
    """
    import array_api_compat

    numpy_dtype = dtype_named(name)
    if numpy_dtype is None:
        return None
    dtype, must_check = target_dtype(numpy_dtype, target, narrowing)
    try:
        xp = array_api_compat.array_namespace(x)
        narrowed = xp.astype(x, getattr(xp, dtype.name))
        lost_number = _lost(x, narrowed, dtype_info(numpy_dtype).kind) if must_check else None
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error, source):
            raise
        return None
    if lost_number is not None:
        raise _does_not_fit(lost_number.item(), name, dtype.name, target)
    return narrowed


def _lost(x: AnyArray, narrowed: Any, kind: str) -> Any:
    """Return the first number that does not fit, or None.

    An integer does not fit if the cast changed it, and a finite number if it became infinite.
    """
    import array_api_compat

    xp = array_api_compat.array_namespace(x)
    if kind in ("int", "uint"):
        lost_mask = xp.astype(narrowed, x.dtype) != x
    elif kind == "complex":
        masks = [xp.isfinite(get(x)) & ~xp.isfinite(get(narrowed)) for get in (xp.real, xp.imag)]
        lost_mask = masks[0] | masks[1]
    else:
        lost_mask = xp.isfinite(x) & ~xp.isfinite(narrowed)
    return x[lost_mask][0] if bool(xp.any(lost_mask)) else None


def _does_not_fit(number: Any, dtype: str, narrowed: str, target: Backend) -> NarrowingError:
    library_note = f", as {target.name} does" if is_built_in(target) else ""
    return NarrowingError(
        f"{target.name} has no {dtype} here, and {number!s} does not fit {narrowed}",
        remedy="Scale the numbers down, or pass "
        f'narrowing="allow" to convert them anyway{library_note}.' + hint_for(target, dtype),
        dtype=dtype,
        narrowed=narrowed,
    )


def cast_checked(x: np.ndarray[Any, Any], dtype: np.dtype[Any], name: str) -> Any:
    """Cast a NumPy array to a dtype of the same kind.

    Args:
        x: the array.
        dtype: the dtype of the result.
        name: the name of the array in messages.

    Raises:
        NarrowingError: a number does not fit.
    """
    cast, lost_number = _cast(x, dtype)
    if lost_number is not None:
        raise NarrowingError(
            f"{name} contains {lost_number!s}, which does not fit {dtype.name}",
            remedy="Use a wider dtype.",
            dtype=x.dtype.name,
            narrowed=dtype.name,
        )
    return cast


def number_array(number: Any, target: Backend, narrowing: Narrowing) -> np.ndarray[Any, Any]:
    """Return a Python number as a 0-d NumPy array of the target's default dtype for such numbers.

    An integer that does not fit this dtype gets a wider dtype.

    Raises:
        NarrowingError: a float or complex number does not fit, and `narrowing` is not "allow"; or an integer fits no
            dtype.
    """
    import numpy as np

    array = np.asarray(number)
    number_kind = type(number).__name__
    name = call_backend(target, "number_dtype", number_kind)
    if not isinstance(name, (str, type, np.dtype)):
        raise wrong_result(target, "number_dtype", repr(name), "It must return a name of a dtype.")
    dtype = dtype_named(name) or array.dtype
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "O":
        raise NarrowingError(
            f"an integer of {number.bit_length()} bits does not fit any dtype",
            remedy='Pass scalars="keep" to leave Python numbers unchanged.',
            dtype="int",
        )
    if dtype.kind in "iu":  # as in NumPy, an integer that does not fit gets a wider dtype
        narrowed = array.astype(dtype)
        return narrowed if int(narrowed) == number else array
    narrowed, lost_number = _cast(array, dtype)
    if lost_number is not None and narrowing != "allow":
        raise NarrowingError(
            f"the Python number {lost_number!s} does not fit {dtype.name}, which is the default dtype of {target.name}",
            remedy='Pass narrowing="allow" to convert it anyway, or scalars="keep" to leave Python '
            "numbers unchanged." + hint_for(target, array.dtype.name),
            dtype=array.dtype.name,
            narrowed=dtype.name,
        )
    return narrowed
