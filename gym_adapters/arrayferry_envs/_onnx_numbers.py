"""ndonnx computing as NumPy does, and random numbers from raw ones. This module imports ndonnx.

onnxruntime sums integers of 64 bits as floats, selects uint64 as float64, and has no number for the place of NaN. What
follows from that is written here in other operations, or refused.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import ndonnx as ndx
import numpy as np

from arrayferry.extending import dtype_name, map_arrays
from arrayferry_gym import Random
from arrayferry_gym._random import check_integers

_HALF = 2**32


class _Namespace(ModuleType):
    """ndonnx, whose functions also take arrays of NumPy, and indices of any integer dtype."""

    def __getattr__(self, name: str) -> Any:
        found = _OWN.get(name) or getattr(ndx, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*args: Any, device: Any = None, **options: Any) -> Any:
            args, options = map_arrays(_constant, (args, options))
            return found(*args, **options)

        return call


def _constant(x: Any) -> Any:
    return ndx.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else x


def _is_whole(x: Any) -> bool:
    kinds = "integral", "bool"
    return isinstance(x, int) or (hasattr(x, "dtype") and ndx.isdtype(_constant(x).dtype, kinds))


def _take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    return ndx.take(x, ndx.astype(indices, ndx.int64), axis=axis)


def _where(condition: Any, x: Any, y: Any, /) -> Any:
    if not hasattr(x, "dtype") and not hasattr(y, "dtype"):
        x = ndx.asarray(x, dtype=None if isinstance(x, (bool, int)) else ndx.float32)
    if ndx.result_type(x, y) != ndx.uint64:
        return ndx.where(condition, x, y)
    x, y = (ndx.astype(ndx.asarray(each), ndx.uint64) for each in (x, y))
    high, low = (
        ndx.where(condition, *(ndx.astype(part(each), ndx.uint32) for each in (x, y)))
        for part in (lambda each: each >> 32, lambda each: each & (_HALF - 1))
    )
    return (ndx.astype(high, ndx.uint64) << 32) | ndx.astype(low, ndx.uint64)


def _summands(x: Any, dtype: Any) -> Any:
    """Return numbers in the dtype of their sum."""
    if dtype is None and _is_whole(x):
        dtype = ndx.uint64 if dtype_name(x.dtype).startswith("u") else ndx.int64
    return x if dtype is None else ndx.astype(x, dtype)


def _sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    x = _summands(x, dtype)
    add = functools.partial(ndx.sum, axis=axis, keepdims=keepdims)
    if not _is_whole(x):
        return add(x)
    whole = ndx.astype(x, ndx.int64)
    high = whole // _HALF
    return ndx.astype(add(high) * _HALF + add(whole - high * _HALF), x.dtype)


def _prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    x = _summands(x, dtype)
    if not _is_whole(x):
        return ndx.prod(x, axis=axis, keepdims=keepdims)
    axes = _axes(x, axis)
    for each in axes:
        parts = (ndx.take(x, ndx.asarray([i]), axis=each) for i in range(x.shape[each]))
        x = functools.reduce(operator.mul, parts)
    return x if keepdims else ndx.squeeze(x, axis=axes)


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(each % x.ndim for each in (axis if isinstance(axis, tuple) else (axis,)))


def _cumulative_sum(x: Any, /, *, dtype: Any = None, **options: Any) -> Any:
    x = _summands(x, dtype)
    if not _is_whole(x):
        return ndx.cumulative_sum(x, **options)
    return ndx.astype(ndx.cumulative_sum(ndx.astype(x, ndx.int64), **options), x.dtype)


def _cumulative_prod(*_args: Any, **_options: Any) -> Any:
    raise NotImplementedError("ndonnx computes cumulative_prod by logarithms")


def _vecdot(x: Any, y: Any, /, *, axis: int = -1) -> Any:
    if not (_is_whole(x) and _is_whole(y)):
        return ndx.vecdot(x, y, axis=axis)
    product = x * y
    return _sum(product, axis=axis, dtype=product.dtype)


def _place(name: str) -> Callable[..., Any]:
    """Return argmax or argmin, for which NaN is beyond all numbers."""
    find = getattr(ndx, name)

    def place(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        options: Any = {"axis": axis, "keepdims": keepdims}
        if _is_whole(x):
            return find(x, **options)
        isnan = ndx.isnan(x)
        first = ndx.argmax(ndx.astype(isnan, ndx.int32), **options)
        return ndx.where(ndx.any(isnan, **options), first, find(x, **options))

    return place


def _var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    if not correction:
        return ndx.var(x, axis=axis, keepdims=keepdims)
    count = np.float64(np.prod([x.shape[each] for each in _axes(x, axis)]))
    with np.errstate(all="ignore"):
        factor = float(count / max(count - correction, 0.0))
    return ndx.var(x, axis=axis, keepdims=keepdims) * factor


def _std(x: Any, /, **options: Any) -> Any:
    return ndx.sqrt(_var(x, **options))


def _logaddexp(x: Any, y: Any, /) -> Any:
    most = ndx.maximum(x, y)
    # infinities have no difference
    return ndx.where(x == y, most + np.log(2).item(), most + ndx.log1p(ndx.exp(-abs(x - y))))


def _sqrt(x: Any, /) -> Any:
    if _is_whole(x):
        x = ndx.astype(x, getattr(ndx, np.sqrt(np.zeros((), dtype_name(x.dtype))).dtype.name))
    return ndx.sqrt(x)


def _cos(x: Any, /) -> Any:
    return 1 - 2 * ndx.sin(x / 2) ** 2 if x.dtype == ndx.float64 else ndx.cos(x)


def _tan(x: Any, /) -> Any:
    return ndx.sin(x) / _cos(x) if x.dtype == ndx.float64 else ndx.tan(x)


_OWN: dict[str, Callable[..., Any]] = {
    "argmax": _place("argmax"), "argmin": _place("argmin"), "cos": _cos, "cumulative_prod": _cumulative_prod,
    "cumulative_sum": _cumulative_sum, "logaddexp": _logaddexp, "prod": _prod, "sqrt": _sqrt, "std": _std, "sum": _sum,
    "take": _take, "tan": _tan, "var": _var, "vecdot": _vecdot, "where": _where,
}  # fmt: skip

XP = _Namespace("ndonnx")
"""The namespace that functions get."""

_POWER, _POWER_OF, _ASTYPE = ndx.Array.__pow__, ndx.Array.__rpow__, ndx.Array.astype


def _power(self: Any, exponent: Any) -> Any:
    if not (_is_whole(self) and _is_whole(exponent)):
        return _POWER(self, exponent)
    if isinstance(exponent, int) and exponent >= 0:
        return functools.reduce(operator.mul, [self] * exponent, ndx.ones_like(self))
    raise NotImplementedError("onnxruntime computes powers of integers as floats")


def _power_of(self: Any, base: Any) -> Any:
    if _is_whole(self) and _is_whole(base) and not (isinstance(base, int) and base == 2):
        raise NotImplementedError("onnxruntime computes powers of integers as floats")
    return _POWER_OF(self, base)


def _by_numpy(function: Any, given: Any, options: Any) -> Any:
    """Call what a function of NumPy is in the standard."""
    name = re.sub("^arc", "a", function.__name__)
    return getattr(XP, _NAMES.get(name, name))(*given, **options)


_NAMES = {
    "absolute": "abs", "concatenate": "concat", "dot": "matmul", "invert": "bitwise_invert", "power": "pow",
    "transpose": "permute_dims",
}  # fmt: skip


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *axis, **options: getattr(XP, name)(
        self, **dict(zip(["axis"], axis, strict=False)), **options
    )


def _astype(self: Any, dtype: Any, **options: Any) -> Any:
    known = isinstance(dtype, ndx.DType)
    return _ASTYPE(self, dtype if known else getattr(ndx, np.dtype(dtype).name), **options)


OF_NUMPY: dict[str, Callable[..., Any]] = {
    "__array_ufunc__": lambda _, function, _kind, *given, **options: _by_numpy(function, given, options),
    "__array_function__": lambda _, function, _types, given, options: _by_numpy(function, given, options),
    "astype": _astype,
    **{name: _method(name) for name in ("sum", "prod", "max", "min", "mean", "argmax", "argmin")},
}  # fmt: skip
"""Methods by which arrays of ndonnx are taken by code that is written for NumPy alone."""

_tracing = threading.RLock()


@contextlib.contextmanager
def exact(**more: Any) -> Iterator[None]:
    """Let arrays of ndonnx compute as `XP` in a block, by operators and in functions that ask for their namespace.

    Where ndonnx warns that it casts to a dtype with fewer digits, that is an error.

    Args:
        **more: further methods of arrays.
    """
    methods = {
        "__array_namespace__": lambda self, *, api_version=None: XP,
        "__pow__": _power, "__rpow__": _power_of,
        **more,
    }  # fmt: skip
    with _tracing, warnings.catch_warnings():
        warnings.filterwarnings("error", ".*lossy cast")
        before = {name: vars(ndx.Array).get(name) for name in methods}
        try:
            for name, method in methods.items():
                setattr(ndx.Array, name, method)
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(ndx.Array, name)
                else:
                    setattr(ndx.Array, name, method)


class RawRandom(Random):
    """Random numbers from raw ones.

    Args:
        xp: the namespace of the numbers.
        name: what they are for.
        take: called with the name, the kind ("uniform" or "normal"), the shape and the dtype of raw numbers; returns
            them.
    """

    def __init__(self, xp: Any, name: str, take: Callable[[str, str, Any, str], Any]) -> None:
        self._xp, self._name, self._take, self._count = xp, name, take, 0

    def _raw(self, kind: str, shape: Sequence[int], dtype: str) -> Any:
        self._count += 1
        wide = "float64" if dtype == "float64" else "float32"
        return self._take(f"random.{self._name}.{self._count - 1}", kind, shape, wide)

    def _float(self, x: Any) -> Any:
        """Return a bound, not in integers, whose difference may overflow."""
        if not hasattr(x, "dtype"):
            return x
        x = self._xp.asarray(x)
        is_float = self._xp.isdtype(x.dtype, "real floating")
        return x if is_float else self._xp.astype(x, self._xp.float64)

    def uniform(
        self, shape: Sequence[int], low: Any = 0.0, high: Any = 1.0, dtype: str = "float32"
    ) -> Any:
        shape, dtype, low, high = self._checked("uniform", shape, dtype, low, high)
        low, high = self._float(low), self._float(high)
        numbers = low + self._raw("uniform", shape, dtype) * (high - low)
        return self._xp.astype(numbers, getattr(self._xp, dtype))

    def normal(
        self, shape: Sequence[int], mean: Any = 0.0, std: Any = 1.0, dtype: str = "float32"
    ) -> Any:
        shape, dtype, mean, std = self._checked("normal", shape, dtype, mean, std)
        numbers = self._raw("normal", shape, dtype) * self._float(std) + self._float(mean)
        return self._xp.astype(numbers, getattr(self._xp, dtype))

    def integers(self, shape: Sequence[int], low: Any, high: Any, dtype: str = "int32") -> Any:
        xp = self._xp
        shape, dtype, low, high = self._checked("integers", shape, dtype, low, high)
        check_integers(low, high, dtype)
        if isinstance(low, int) and isinstance(high, int) and high - low >= 2**63:
            raise NotImplementedError("a file draws from fewer than 2**63 integers")
        low, high = (
            xp.astype(xp.asarray(x % 2**64, dtype=xp.uint64) if isinstance(x, int) else xp.asarray(x), xp.int64)
            for x in (low, high)
        )  # fmt: skip
        width = high - low
        numbers = self._raw("uniform", shape, "float64")  # float32 has no odd numbers from 2**24
        drawn = xp.astype(xp.floor(numbers * xp.astype(width, xp.float64)), xp.int64)
        return xp.astype(low + xp.minimum(drawn, width - 1), getattr(xp, dtype))

    def categorical(self, shape: Sequence[int], logits: Any, dtype: str = "int32") -> Any:
        xp = self._xp
        shape, dtype, logits = self._checked("categorical", shape, dtype, logits)
        logits = xp.asarray(logits)
        numbers = self._raw("uniform", (*shape, logits.shape[-1]), "float32")
        # the index with the shortest of exponential waiting times, as `HostRandom` draws it
        waits = -xp.log1p(-xp.astype(numbers, xp.float64)) + 1e-300
        drawn = xp.argmax(xp.astype(logits, xp.float64) - xp.log(waits), axis=-1)
        return xp.astype(drawn, getattr(xp, dtype))
