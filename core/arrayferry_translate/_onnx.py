"""`OnnxLibrary`: the operations of ndonnx, which records an ONNX graph."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import ndonnx as ndx
import numpy as np
import spox.opset.ai.onnx.v21 as op

from arrayferry import Backend
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device

from ._library import Dims, Library

WIDER = {
    "bool": "int32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
}
"""The dtypes for which onnxruntime lacks most operators, each with the wider dtype to use instead."""


ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196, 1.00002368,
    -1.26551223,
)  # fmt: skip
"""The coefficients of `erfc` of Press et al., "Numerical recipes in C", 1992, section 6.2.

The relative error is at most 1.2e-7.
"""


def _recorded(function: Callable[..., Any], *arrays: AnyTree, **attributes: Any) -> Any:
    """Record an ONNX operator, and return its result."""
    return ndx.asarray(function(*(x.unwrap_spox() for x in arrays), **attributes))


def _number(value: AnyTree, name: str) -> Any:
    return ndx.asarray(np.asarray(value, name))


def _widened(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that casts arguments to a dtype that onnxruntime supports, and casts the result back."""

    def widened(*arrays: AnyTree, **options: Any) -> Any:
        dtype = arrays[0].dtype
        wider_name = WIDER.get(dtype_name(dtype))
        if wider_name is None:
            return run(*arrays, **options)
        wide_arrays = (ndx.astype(x, getattr(ndx, wider_name)) for x in arrays)
        return ndx.astype(run(*wide_arrays, **options), dtype)

    return widened


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: AnyArray, *, axis: Dims, dtype: Any = None) -> Any:
        return _recorded(function, x, _number(axis, "int64"), keepdims=False)

    return _widened(reduced)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    reduce_extreme = _reduction(function)

    def extreme(x: AnyArray, *, axis: Dims) -> Any:
        extremes = reduce_extreme(x, axis=axis)
        if "float" not in dtype_name(x.dtype):
            return extremes
        return ndx.where(_any(ndx.isnan(x), axis=axis), math.nan, extremes)  # onnxruntime skips NaN

    return extreme


def _place(find: Callable[..., Any]) -> Callable[..., Any]:
    def find_place(x: AnyArray, *, axis: int) -> Any:
        places = find(x, axis=axis)
        if "float" not in dtype_name(x.dtype):
            return places
        is_nan = ndx.isnan(x)
        first_nan = ndx.argmax(ndx.astype(is_nan, ndx.int32), axis=axis)
        return ndx.where(_any(is_nan, axis=(axis,)), first_nan, places)

    return find_place


_any = _reduction(op.reduce_max)


def _sum(x: AnyArray, *, axis: Dims, dtype: Any = None) -> Any:
    if dtype_name(x.dtype) in ("int64", "uint64"):
        raise NotImplementedError("onnxruntime adds 64-bit integers as floats, which is not exact")
    is_integer = "int" in dtype_name(x.dtype)
    total = _reduction(op.reduce_sum)(ndx.astype(x, ndx.int64) if is_integer else x, axis=axis)
    return ndx.astype(total, x.dtype)


def _products(x: AnyArray, axis: int) -> list[Any]:
    slices = (_recorded(op.gather, x, _number(n, "int64"), axis=axis) for n in range(x.shape[axis]))
    return [*accumulate(slices, operator.mul)]


def _prod(x: AnyArray, *, axis: Dims, dtype: Any = None) -> Any:
    """Return products along axes. Multiply the elements one by one, since onnxruntime multiplies integers as floats."""
    for reduced_axis in sorted(axis, reverse=True):
        remaining_shape = (*x.shape[:reduced_axis], *x.shape[reduced_axis + 1 :])
        products = _products(x, reduced_axis)
        x = products[-1] if products else ndx.ones(remaining_shape, dtype=x.dtype)
    return x


def _cumulative_prod(x: AnyArray, *, axis: int, dtype: Any = None) -> Any:
    return ndx.stack(_products(x, axis), axis=axis) if x.shape[axis] else x


def _clip(x: AnyArray, low: int, high: int) -> Any:
    name = dtype_name(x.dtype)
    return _recorded(op.clip, x, _number(low, name), _number(high, name))


def _pad(x: AnyArray, value: AnyTree, ends: Sequence[int]) -> Any:
    pad_widths = _number(ends, "int64")
    return _widened(lambda x, value: _recorded(op.pad, x, pad_widths, value))(x, value)


def _fmod(x: AnyArray, y: AnyArray) -> Any:
    if "float" in dtype_name(x.dtype):
        return _recorded(op.mod, x, y, fmod=1)
    return x - _recorded(op.div, x, y) * y  # div rounds towards 0, as fmod requires


def _signbit(x: AnyArray) -> Any:
    return (x < 0) | (x == 0) & (1 / x < 0)


def _shifted(x: AnyArray, count: Any, direction: str) -> Any:
    """Shift bits. A shift to the right preserves the sign of signed integers."""
    dtype, name = x.dtype, dtype_name(x.dtype)
    if name.startswith("u"):
        return _recorded(op.bit_shift, x, count, direction=direction)
    unsigned_dtype, is_negative = getattr(ndx, f"u{name}"), x < 0
    is_right = direction == "RIGHT"
    x = ndx.where(is_negative, ~x, x) if is_right else x
    x, count = ndx.astype(x, unsigned_dtype), ndx.astype(count, unsigned_dtype)
    x = ndx.astype(_recorded(op.bit_shift, x, count, direction=direction), dtype)
    return ndx.where(is_negative, ~x, x) if is_right else x


OPERATORS: dict[str, Callable[..., Any]] = {
    "all": _reduction(op.reduce_min), "any": _any, "max": _extreme(op.reduce_max),
    "min": _extreme(op.reduce_min), "argmax": _place(ndx.argmax), "argmin": _place(ndx.argmin), "sum": _sum, "prod": _prod, "cumulative_prod": _cumulative_prod,
    "bitwise_left_shift": functools.partial(_shifted, direction="LEFT"),
    "bitwise_right_shift": functools.partial(_shifted, direction="RIGHT"),
    "clip": _clip, "fmod": _fmod, "matmul": _widened(functools.partial(_recorded, op.matmul)), "pad": _pad, "signbit": _signbit,
}  # fmt: skip
"""Functions that ndonnx lacks, or for which it records more operators than these functions do."""


def _erf(x: AnyArray) -> Any:
    if dtype_name(x.dtype) == "float64":
        raise NotImplementedError("onnxruntime has no erf of float64")
    return _recorded(op.erf, x)


def _erfc(x: AnyArray) -> Any:
    if dtype_name(x.dtype) == "float64":
        raise NotImplementedError(
            "onnxruntime has no erfc, and the replacement has only 7 digits, too few for float64"
        )
    wide_x = ndx.astype(x, ndx.float64)
    reciprocal = 1 / (1 + 0.5 * abs(wide_x))
    polynomial = functools.reduce(lambda sum_, term: sum_ * reciprocal + term, ERFC)
    erfc_of_abs = reciprocal * ndx.exp(polynomial - wide_x * wide_x)
    return ndx.astype(ndx.where(wide_x < 0, 2 - erfc_of_abs, erfc_of_abs), x.dtype)


SPECIAL = {"erf": _erf, "erfc": _erfc}


class OnnxLibrary(Library):
    """The operations of ndonnx. Nested programs become subgraphs of the ONNX graph."""

    records = True

    def __init__(self, backend: Backend, device: Device) -> None:
        super().__init__(backend, device)
        self.native = SimpleNamespace(**OPERATORS)
        self.xp = _Operators(self.xp)

    def result(self, x: AnyArray, name: str, *, owned: bool) -> Any:
        return x

    def take(self, x: AnyArray, indices: AnyArray) -> Any:
        return _recorded(op.gather, self.xp.reshape(x, (-1,)), indices)

    def put(self, x: AnyArray, indices: AnyArray, updates: AnyTree, how: str) -> Any:
        onnx_names = {"set": "none", "multiply": "mul", "minimum": "min", "maximum": "max"}
        scatter = functools.partial(op.scatter_elements, reduction=onnx_names.get(how, how))
        if how == "set":
            return _recorded(scatter, x, indices, updates)
        return _widened(lambda x, updates: _recorded(scatter, x, indices, updates))(x, updates)

    def bitcast(self, x: AnyArray, old: str, new: str) -> Any:
        if "float" not in old + new or old == new:
            return self.cast(x, new)
        if "float" in old and "float" not in new:
            return self.cast(_bits(x), new)
        if new != "float32":
            raise NotImplementedError(f"the bits of {old} cannot be read as {new}")
        return _float(self.cast(x, "uint32"))

    def convolution(self, name: str, dtype: str) -> Callable[..., Any] | None:
        return _convolution if dtype == "float32" and "transpose" not in name else None

    def special(self, name: str) -> Callable[..., Any]:
        return SPECIAL.get(name) or super().special(name)

    def switch(
        self, index: Any, runs: Sequence[Any], arrays: Sequence[Any], shapes: Sequence[Dims]
    ) -> list[Any]:
        """Call the function in `runs` that an index selects. `shapes` are the shapes of its results."""

        def branch_from(number: int) -> Any:
            if number == len(runs) - 1:
                return _unwrapped(runs[number](list(arrays)))
            return op.if_(
                (index <= number).unwrap_spox(),
                then_branch=lambda: _unwrapped(runs[number](list(arrays))),
                else_branch=lambda: branch_from(number + 1),
            )

        return _shaped(branch_from(0), shapes)

    def loop(self, going: Any, body: Any, values: Sequence[Any]) -> list[Any]:
        """Call `body` with a list of arrays, then with its result, and so on, while `going` returns True for the list.

        Return the last list.
        """
        shapes = [x.shape for x in values]

        def flag_of(values: AnyTree) -> Any:
            return ndx.reshape(going(values), (1,))

        def step(_number: Any, _going: Any, *inner: Any) -> Any:
            new_values = body(_shaped(inner, shapes))
            return _unwrapped([flag_of(new_values), *new_values])

        inputs = [x.unwrap_spox() for x in values]
        return _shaped(op.loop(None, flag_of([*values]).unwrap_spox(), inputs, body=step), shapes)

    def scan(
        self, body: Any, values: Sequence[Any], rows: Sequence[Any], length: int, shapes: Sequence[Dims], *,
        reverse: bool,
    ) -> list[Any]:  # fmt: skip
        """Call a function for each row. Pass its first results to the next call, and stack all other results.

        Args:
            body: a function of the passed arrays and one row of each array in `rows`. It returns a list: the arrays
                to pass to the next call, and then the results to stack.
            values: the arrays that are passed to the first call.
            rows: the arrays that are split into rows along axis 0.
            length: the number of rows.
            shapes: the shapes of the arrays that this method returns: those of `values`, then the stacked results.
            reverse: whether the loop starts at the last row.
        """
        x_shapes = [x.shape for x in values]

        def step(number: Any, going: Any, *inner: Any) -> Any:
            number = _shaped([number], [()])[0]
            row_index = length - 1 - number if reverse else number
            row = [_recorded(op.gather, x, row_index) for x in rows]
            return [op.identity(going), *_unwrapped(body([*_shaped(inner, x_shapes), *row]))]

        num_rows = op.const(np.int64(length))
        inputs = [x.unwrap_spox() for x in values]
        outputs = _shaped(op.loop(num_rows, None, inputs, body=step), shapes)
        stacked = (self.xp.flip(x, axis=0) if reverse else x for x in outputs[len(values) :])
        return [*outputs[: len(values)], *stacked]


def _float(bits: Any) -> Any:
    """Return the float32 numbers whose bits are these uint32 numbers."""
    exponent, exponents = (bits >> 23) & 255, np.arange(256)
    # |x| is base + unit * (the last 23 bits of x), where base and unit depend on the exponent
    unit = np.where(exponents == 255, np.nan, 2.0 ** (np.maximum(exponents, 1) - 150.0))
    base = np.where(exponents == 0, 0, 2.0 ** (exponents - 127.0))
    mantissa = ndx.astype(bits & 0x7FFFFF, ndx.float64)
    unit, base = (
        _recorded(op.gather, _number(table, "float64"), ndx.astype(exponent, ndx.int64))
        for table in (unit, base)
    )
    magnitude = ndx.where((exponent == 255) & (mantissa == 0), math.inf, base + mantissa * unit)
    return ndx.astype(magnitude * (1 - 2 * ndx.astype(bits >> 31, ndx.float64)), ndx.float32)


def _bits(x: AnyArray) -> Any:
    """Return the bits of floats, read as signed integers, in an array of int64."""
    finfo = np.finfo(dtype_name(x.dtype))
    unit, bias, infinity = 2**finfo.nmant, finfo.maxexp - 1, 2 ** (finfo.bits - 1) - 2**finfo.nmant
    magnitude, is_finite = ndx.astype(abs(x), ndx.float64), ndx.isfinite(x)
    positive = ndx.where(is_finite & (magnitude > 0), magnitude, 1.0)
    guess = ndx.astype(ndx.floor(ndx.log(positive) / math.log(2)), ndx.int64)
    guess = _clip(guess, 1 - bias, bias)
    power_table = _number([*2.0 ** np.arange(-bias, bias + 1), math.inf], "float64")

    def power_of(exponent: Any) -> Any:
        return _recorded(op.gather, power_table, exponent + bias)

    too_low, too_high = magnitude >= power_of(guess + 1), magnitude < power_of(guess)
    exponent = guess + ndx.astype(too_low, ndx.int64) - ndx.astype(too_high, ndx.int64)
    exponent = _clip(exponent, 1 - bias, bias)
    mantissa = ndx.astype(positive / power_of(exponent) * float(unit), ndx.int64)
    bits = ndx.where(magnitude == 0, 0, (exponent + bias - 1) * unit + mantissa)
    bits = ndx.where(ndx.isnan(x), infinity + unit // 2, ndx.where(is_finite, bits, infinity))
    return bits + ndx.astype(_signbit(x), ndx.int64) * -(2 ** (finfo.bits - 1))


class _Operators:
    """The namespace of ndonnx, in which the functions in `OPERATORS` replace functions of ndonnx."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return OPERATORS.get(name) or getattr(self._xp, name)


def _shaped(variables: Sequence[Any], shapes: Sequence[Dims]) -> list[Any]:
    """Return variables of a subgraph as arrays. Reshape those whose shapes ONNX has not inferred."""
    variable_shapes = zip(variables, shapes, strict=True)
    return [
        ndx.asarray(
            x
            if x.unwrap_tensor().shape == shape
            else op.reshape(x, op.const(np.asarray(shape, "int64")))
        )
        for x, shape in variable_shapes
    ]


def _unwrapped(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays as outputs of a subgraph. ONNX requires that an operator of the subgraph returns each output."""
    return [op.identity(x.unwrap_spox()) for x in arrays]


def _convolution(
    x: AnyArray, kernel: Any, bias: None, strides: Dims, padding: int, dilations: Dims, groups: int
) -> Any:
    return _recorded(op.conv, x, kernel, strides=strides, dilations=dilations, group=groups)
