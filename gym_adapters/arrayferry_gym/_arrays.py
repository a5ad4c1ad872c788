"""The namespaces of array libraries, names of dtypes, and casts between dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry.extending import dtype_info, dtype_name, dtype_named
from arrayferry.typing import AnyArray, AnyTree, Namespace


@functools.lru_cache(64)
def namespace(backend: af.Backend) -> Any:
    """Return the namespace of a library, which methods of environments receive as `xp`."""
    x = backend.from_numpy(np.zeros((), np.float32))
    # for JAX, array-api-compat would create an array, which JAX's transfer guard may refuse
    return x.__array_namespace__() if backend.name == "jax" else af.namespace_of(x)


def select(xp: Namespace, mask: AnyArray, new: Any, old: Any) -> Any:
    """Return the rows of `new` where the mask is true, and the rows of `old` elsewhere."""
    return xp.where(rows_of(xp, mask, old), new, old)


def rows_of(xp: Namespace, mask: AnyArray, x: AnyArray) -> Any:
    """Return a mask of shape (n,) reshaped to (n, 1, ...), so that it broadcasts to the array `x` of shape (n, ...)."""
    if tuple(x.shape) == tuple(mask.shape):
        return mask
    return xp.reshape(mask, (mask.shape[0],) + (1,) * (len(x.shape) - 1))


def to_shape(xp: Namespace, x: AnyArray, shape: Any) -> Any:
    """Append axes to an array, and broadcast it along these axes to a shape."""
    if tuple(x.shape) == tuple(shape):
        return x
    x = xp.reshape(x, (*x.shape, *(1 for _ in shape[len(x.shape) :])))
    return xp.broadcast_to(x, tuple(shape))


def copied(array: AnyArray) -> Any:
    """Return a copy of an array of any library. Gradients pass through the copy."""
    copy_method = getattr(array, "clone", None) or getattr(array, "copy", None)
    return af.registry.kind(array).backend.copy(array) if copy_method is None else copy_method()  # type: ignore[union-attr]


def as_flags(x: AnyArray) -> Any:
    """Return flags as an array of dtype bool. Flags may be a list or have another dtype. Numbers except 0 are true."""
    dtype = getattr(x, "dtype", None)
    if dtype is BOOL:
        return x
    if isinstance(x, (list, tuple)):
        x = np.asarray(x)
        dtype = x.dtype
    dtype_type: Any = type(dtype)
    return x if dtype is None or _is_bool(dtype_type, dtype) else x != 0


BOOL = np.dtype(bool)
"""The dtype of flags in NumPy and JAX."""


def as_rewards(given: Any, n: int | None = None) -> Any:
    """Return rewards as an array. A number or a list of numbers becomes a NumPy array of dtype float64.

    Args:
        given: the rewards, of any library.
        n: the number of environments, or None for one environment.

    Raises:
        TypeError: the rewards are not numbers, or there is not one reward for each environment.
    """
    array = given
    try:
        if not hasattr(given, "dtype"):
            is_sequence = isinstance(given, (list, tuple))
            array = np.array(af.convert(given, "numpy") if is_sequence else given, float)
        if n is None or array.shape[:1] == (n,):
            return array
    except (TypeError, ValueError):  # the rewards are not numbers: the error below says so
        pass
    needed_text = "numbers" if n is None else f"{n} numbers in an array or a list"
    raise TypeError(
        f"the rewards are {given!r:.80}, but {needed_text} are needed. Combine the rewards of a step by a TransformReward"
    )


# `kind` is in the cache's key, since comparing dtypes of two libraries may raise an error
@functools.cache
def _is_bool(kind: type, dtype: Any) -> bool:
    return dtype_name(dtype).startswith("bool")


def mapped(function: Callable[..., Any], tree: AnyTree, *others: Any) -> Any:
    """Apply a function to the corresponding arrays of trees: dicts, tuples and lists of the same structure."""
    if isinstance(tree, dict):
        return {
            key: mapped(function, part, *(x[key] for x in others)) for key, part in tree.items()
        }
    if isinstance(tree, (tuple, list)):
        results = (mapped(function, *parts) for parts in zip(tree, *others, strict=True))
        return type(tree)(*results) if hasattr(tree, "_fields") else type(tree)(results)
    return function(tree, *others)


def held_dtype(dtype: Any, backend: af.Backend) -> str:
    """Return the name of the dtype that arrays of a NumPy dtype have after conversion to a library."""
    return str(af.fit_dtype(np.zeros((), dtype), backend, "allow").dtype.name)


def dtype_in(xp: Namespace, dtype: Any) -> Any:
    """Return the dtype to which a NumPy dtype corresponds in a namespace. Its name is the result of `held_dtype`."""
    if xp.__name__ == "array_api_compat.numpy":
        return dtype
    if xp.__name__.startswith("jax"):  # no cache, since dtypes depend on `jax_enable_x64`
        return _dtype_in(xp, dtype)
    return _known_dtype_in(xp, dtype)


def _dtype_in(xp: Namespace, dtype: Any) -> Any:
    return getattr(xp, held_dtype(dtype, af.registry.backend(xp)))


_known_dtype_in = functools.cache(_dtype_in)


def cast_numbers(x: AnyArray, dtype: np.dtype[Any]) -> Any:
    """Cast a NumPy array to another dtype. Floats may be rounded, but whole numbers must not change.

    Raises:
        ValueError: the new dtype cannot represent a number, the array is complex and the new dtype is not, or one of
            the dtypes is not numeric.
    """
    kind, wanted_kind = dtype_info(x.dtype).kind, dtype_info(dtype).kind
    if not kind or not wanted_kind or (kind == "complex" != wanted_kind):
        raise ValueError("its dtype is complex or not numeric")
    with np.errstate(all="ignore"):
        cast = x.astype(dtype)
        if kind in _INEXACT and wanted_kind in _INEXACT:
            finite = np.isfinite(cast)
            if finite.all():
                return cast
            fit_mask = finite | ~np.isfinite(x)
        else:
            fit_mask = cast == x
            # `cast == x` would round integers to floats, so the floats are cast back to integers
            if kind not in _INEXACT and wanted_kind in _INEXACT:
                fit_mask &= cast.real.astype(x.dtype) == x
    if not fit_mask.all():
        raise ValueError(f"{first_wrong(x, ~fit_mask)} is no {dtype}")
    return cast


_INEXACT = ("float", "complex")


def cast_fitting(x: AnyArray, dtype: Any, what: str) -> Any:
    """Cast an array of any library by the rules of `cast_numbers`. Its values are read unless the array is traced.

    Args:
        x: the array.
        dtype: a dtype of the array's library.
        what: the name of the array in messages.

    Raises:
        arrayferry.NarrowingError: `cast_numbers` refuses the array.
    """
    if x.dtype != dtype and not af.backend_of(x).is_traced(x):
        name = dtype_name(dtype)
        try:
            cast_numbers(np.asarray(af.convert(x, "numpy")), np.dtype(dtype_named(name) or dtype))
        except ValueError as error:
            raise af.NarrowingError(
                f"{what} does not fit {name}: {error}", remedy="Pass numbers that fit the dtype."
            ) from None
    return af.namespace_of(x).astype(x, dtype)


def cast_clipped(x: AnyArray, dtype: Any) -> Any:
    """Cast an array to another dtype. The result is the same in each library. Values are not read from the device.

    For an integer dtype, a number out of range becomes the nearest number in range, and NaN becomes the lowest number.
    """
    xp = af.namespace_of(x)
    if x.dtype == dtype:
        return xp.astype(x, dtype)
    source_name, wanted_name = dtype_name(x.dtype), dtype_name(dtype)
    in_jax = xp.__name__.startswith("jax")
    if in_jax and wanted_name.endswith("int64"):
        wanted_name = held_dtype(wanted_name, af.registry.backend("jax"))
    if _widens(source_name, wanted_name):
        return xp.astype(x, dtype)
    if (limits := _limits(source_name, wanted_name)) is None:
        with np.errstate(under="ignore"):  # NumPy would warn of small floats that become 0
            return xp.astype(x, dtype)
    low, high, least, most = limits
    if in_jax:  # JAX would read Python integers as int32, which may be too small
        least, most = (np.asarray(bound, wanted_name)[()] for bound in (least, most))
    elif source_name[:4] == "uint" and source_name != "uint8" and "torch" in xp.__name__:
        x = xp.astype(x, xp.int64)  # PyTorch cannot compare uint16, uint32 and uint64
    cast = xp.astype(xp.where(x > low, xp.where(x < high, x, high), low), dtype)
    if (low, high) == (least, most):
        return cast
    return xp.where(x > high, most, xp.where(x >= low, cast, least))


@functools.cache
def _widens(name: str, wanted: str) -> bool:
    """Tell whether NumPy can cast one dtype to another without changing any number."""
    return np.can_cast(np.dtype(dtype_named(name)), np.dtype(dtype_named(wanted)), "safe")


@functools.cache
def _limits(name: str, wanted: str) -> tuple[Any, ...] | None:
    """Return the limits for a cast from one dtype to an integer dtype, or None if clipping is not needed.

    The limits are the lowest and the highest number to cast, and the two integers that replace lower and higher
    numbers.
    """
    old: Any = dtype_named(name)
    old_info, new_info = dtype_info(old), dtype_info(np.dtype(dtype_named(wanted)))
    if new_info.kind not in ("int", "uint") or old_info.kind not in ("int", "uint", "float"):
        return None
    least, most = int(new_info.limits.min), int(new_info.limits.max)
    num_type: Any = float if old_info.kind == "float" else int
    old_ends = num_type(old_info.limits.min), num_type(old_info.limits.max)
    low, high = max(num_type(least), old_ends[0]), min(num_type(most), old_ends[1])
    if num_type is float and float(top := np.asarray(high, old)) > most:  # `old` rounded `high` up
        high = float(np.nextafter(top, np.asarray(0, old)))
    elif num_type is int and (low, high) == old_ends:
        return None
    elif old_info.kind == "uint":  # as int64 in PyTorch, the largest uint64 numbers are negative
        least = most
    return low, high, least, most


def first_wrong(x: AnyArray, wrong: Any) -> str:
    """Return the value and the index of the first number where `wrong` is true, such as "7, at [0, 2],"."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    place_text = f", at {list(index)}," if index else ""
    return f"{x[index]}{place_text}"
