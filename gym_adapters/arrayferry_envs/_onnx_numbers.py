"""Makes ndonnx compute as NumPy does. This module imports ndonnx.

onnxruntime adds 64-bit integers as floats, selects uint64 as float64, and its argmax ignores NaN. Here, functions that
these faults affect are replaced by other operations, or refused.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import ndonnx as ndx
import numpy as np

from arrayferry.extending import dtype_name, map_arrays
from arrayferry.typing import AnyArray, Device

from ._contract.raw_random import is_whole


class _Namespace(ModuleType):
    """The namespace of ndonnx, with functions that also accept NumPy arrays and indices of any integer dtype."""

    def __getattr__(self, name: str) -> Any:
        member = _OWN.get(name) or getattr(ndx, name)
        if not callable(member) or isinstance(member, type):
            return member

        def call(*args: Any, device: Device = None, **options: Any) -> Any:
            args, options = map_arrays(_constant, (args, options))
            return member(*args, **options)

        return call


XP = _Namespace("ndonnx")
"""The namespace that is passed to functions that are exported."""


def _constant(x: AnyArray) -> Any:
    return ndx.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _where(condition: Any, x: AnyArray, y: AnyArray, /) -> Any:
    if not hasattr(x, "dtype") and not hasattr(y, "dtype"):
        x = ndx.asarray(x, dtype=None if isinstance(x, (bool, int)) else ndx.float32)
    if ndx.result_type(x, y) != ndx.uint64:
        return ndx.where(condition, x, y)
    mask = ndx.astype(condition, ndx.uint64)
    return mask * x + (1 - mask) * y


def _summands(x: AnyArray, dtype: Any) -> Any:
    """Cast numbers to the dtype of their sum."""
    if dtype is None and not ndx.isdtype(x.dtype, "real floating"):
        dtype = ndx.uint64 if dtype_name(x.dtype).startswith("u") else ndx.int64
    return x if dtype is None else ndx.astype(x, dtype)


def _sum(x: AnyArray, /, *, dtype: Any = None, **options: Any) -> Any:
    x = _summands(x, dtype)
    if not is_whole(x):
        return ndx.sum(x, **options)
    as_int64 = ndx.astype(x, ndx.int64)
    high_halves = as_int64 // 2**32  # sums of 32-bit halves are exact in float64
    low_sum = ndx.sum(as_int64 - high_halves * 2**32, **options)
    return ndx.astype(ndx.sum(high_halves, **options) * 2**32 + low_sum, x.dtype)


def _cumulative_sum(x: AnyArray, /, *, dtype: Any = None, **options: Any) -> Any:
    x = _summands(x, dtype)
    widened = ndx.astype(x, ndx.int64) if is_whole(x) else x
    return ndx.astype(ndx.cumulative_sum(widened, **options), x.dtype)


def _axes(x: AnyArray, axis: Any) -> tuple[int, ...]:
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(each % x.ndim for each in axes)


def _prod(x: AnyArray, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    x = _summands(x, dtype)
    if not is_whole(x):
        return ndx.prod(x, axis=axis, keepdims=keepdims)
    for axis_index in (axes := _axes(x, axis)):
        parts = (ndx.take(x, ndx.asarray([i]), axis=axis_index) for i in range(x.shape[axis_index]))
        x = functools.reduce(operator.mul, parts)
    return x if keepdims else ndx.squeeze(x, axis=axes)


def _place(find: Callable[..., Any], x: AnyArray, /, **options: Any) -> Any:
    """Return the index of the first NaN or, without NaN, the result of `find`, which is argmax or argmin."""
    extreme = find(x, **options)
    if is_whole(x):
        return extreme
    isnan = ndx.isnan(x)
    first_nan = ndx.argmax(ndx.astype(isnan, ndx.int32), **options)
    return ndx.where(ndx.any(isnan, **options), first_nan, extreme)


def _var(
    x: AnyArray, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> Any:
    var = ndx.var(x, axis=axis, keepdims=keepdims)
    count = math.prod(x.shape[i] for i in _axes(x, axis))
    with np.errstate(all="ignore"):
        return var * float(np.float64(count) / max(count - correction, 0)) if correction else var


def _logaddexp(x: AnyArray, y: AnyArray, /) -> Any:
    larger = ndx.maximum(x, y)  # x == y is separate, since inf - inf is NaN
    return ndx.where(x == y, larger + math.log(2), larger + ndx.log1p(ndx.exp(-abs(x - y))))


def _sqrt(x: AnyArray, /) -> Any:
    dtype = np.sqrt(np.zeros((), dtype_name(x.dtype))).dtype.name
    return ndx.sqrt(ndx.astype(x, getattr(ndx, dtype)))


def _refused(reason: str, *_args: Any, **_options: Any) -> Any:
    raise NotImplementedError(reason)


_OWN: dict[str, Callable[..., Any]] = {
    "argmax": functools.partial(_place, ndx.argmax), "argmin": functools.partial(_place, ndx.argmin),
    "cos": lambda x, /: 1 - 2 * ndx.sin(x / 2) ** 2 if x.dtype == ndx.float64 else ndx.cos(x),
    "cumulative_prod": functools.partial(_refused, "ndonnx computes cumulative_prod by logarithms"),
    "cumulative_sum": _cumulative_sum, "logaddexp": _logaddexp, "prod": _prod, "sqrt": _sqrt,
    "std": lambda x, /, **options: ndx.sqrt(_var(x, **options)), "sum": _sum,
    "take": lambda x, indices, /, **axis: ndx.take(x, ndx.astype(indices, ndx.int64), **axis),
    "tan": lambda x, /: ndx.sin(x) / XP.cos(x) if x.dtype == ndx.float64 else ndx.tan(x), "var": _var,
    "vecdot": lambda x, y, /, *, axis=-1: _sum(x * y, axis=axis, dtype=(x * y).dtype), "where": _where,
}  # fmt: skip
"""Replacements for functions of ndonnx, by the names of the functions in the Array API standard."""

_PLAIN = ndx.Array.__pow__, ndx.Array.__rpow__, ndx.Array.astype


def _power(x: AnyArray, exponent: Any) -> Any:
    if not (is_whole(x) and is_whole(exponent)):
        return _PLAIN[0](x, exponent)
    if isinstance(exponent, int) and exponent >= 0:
        return functools.reduce(operator.mul, [x] * exponent, ndx.ones_like(x))
    return _refused("onnxruntime computes powers of integers as floats")


def _power_of(x: AnyArray, base: Any) -> Any:
    is_supported = not (is_whole(x) and is_whole(base)) or (isinstance(base, int) and base == 2)
    return _PLAIN[1](x, base) if is_supported else _power(ndx.asarray(base), x)


def _by_numpy(_self: Any, function: Any, _kind: Any, *args: Any, **options: Any) -> Any:
    """Call the function of the Array API standard that corresponds to a function of NumPy."""
    name = re.sub("^arc", "a", function.__name__)
    standard_names = {"absolute": "abs", "concatenate": "concat", "dot": "matmul", "power": "pow"}
    return getattr(XP, standard_names.get(name, name))(*args, **options)


def _astype(x: AnyArray, dtype: Any, **copy: Any) -> Any:
    is_dtype = isinstance(dtype, ndx.DType)
    return _PLAIN[2](x, dtype if is_dtype else getattr(ndx, np.dtype(dtype).name), **copy)


OF_NUMPY: dict[str, Callable[..., Any]] = {
    "__array_ufunc__": _by_numpy,
    "__array_function__": lambda x, f, types, args, options: _by_numpy(x, f, types, *args, **options),
    "argmax": lambda x, axis=None, **options: XP.argmax(x, axis=axis, **options), "astype": _astype,
}  # fmt: skip
"""Methods that let functions written in NumPy accept arrays of ndonnx."""

_tracing = threading.RLock()


@contextlib.contextmanager
def exact(**more: Any) -> Iterator[None]:
    """In a block, make `XP` the namespace of ndonnx arrays, and replace their power operators by exact operations.

    A warning of ndonnx about a cast to a dtype with fewer digits becomes an error.

    Args:
        **more: further methods to replace in ndonnx arrays, by name.
    """
    more["__array_namespace__"] = lambda self, *, api_version=None: XP
    more |= {"__pow__": _power, "__rpow__": _power_of}
    with _tracing, warnings.catch_warnings():
        warnings.filterwarnings("error", ".*lossy cast")
        methods_before = {name: vars(ndx.Array).get(name) for name in more}
        _set_methods(more)
        try:
            yield
        finally:
            _set_methods(methods_before)


def _set_methods(methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        delattr(ndx.Array, name) if method is None else setattr(ndx.Array, name, method)
