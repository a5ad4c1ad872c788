"""The rules of primitives that compute each element independently of all others."""

from __future__ import annotations

import operator
from typing import Any

from arrayferry.typing import AnyArray

from ._rule import Run, Site, rule

OPERATORS: dict[str, Run] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "add": operator.add,
    "add_any": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "not": operator.invert,
}  # fmt: skip
ORDERS = "lt", "le", "gt", "ge"
WIDENING = "add", "sub", "mul"
"""Primitives whose parameter `out_dtype` may differ from the dtype of the inputs."""
FUNCTIONS = (
    "abs floor ceil sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp expm1 log log1p sqrt atan2 "
    "nextafter is_finite"
)
"""Primitives that the Array API has as functions, with the same names except for "_"."""
SPECIAL = {"erf": "erf", "erfc": "erfc", "lgamma": "gammaln", "digamma": "psi"}
"""The name in `scipy.special` of each primitive that is a special function."""
DIFFERING = {"lgamma": (float("-inf"), float("inf")), "digamma": (0, float("nan"))}
"""For each function, an argument for which libraries return different values, and the value that JAX returns."""


@rule(" ".join(OPERATORS), "out_dtype")
def _operator(site: Site) -> Run:
    run, dtype, library = OPERATORS[site.name], site.dtype, site.library
    if site.name in WIDENING and site.ins[0].dtype != dtype:
        raise NotImplementedError(f"a result of {dtype} from other dtypes is not supported")
    if site.name in ORDERS and site.ins[0].dtype == "bool":  # few libraries support < of bools
        return lambda x, y: run(library.cast(x, "uint8"), library.cast(y, "uint8"))
    if dtype not in library.wider or site.name in ("and", "or", "xor"):
        return run
    return lambda *arrays: library.wrapped(run(*arrays), dtype)


@rule(FUNCTIONS, "accuracy input_dtype")
def _function(site: Site) -> Run:
    return site.library.function(site.name.replace("_", ""))


@rule(" ".join(SPECIAL), "accuracy")
def _special(site: Site) -> Run:
    library, dtype, where = site.library, site.dtype, site.library.function("where")
    run, cast = library.special(SPECIAL[site.name]), library.cast
    if site.name not in DIFFERING:
        return lambda x: cast(run(x), dtype)
    special_x, special_y = (library.full((), number, dtype) for number in DIFFERING[site.name])
    return lambda x: where(x == special_x, special_y, cast(run(x), dtype))


@rule("max min")
def _extreme(site: Site) -> Run:
    function_name = f"{site.name}imum"
    if site.dtype == "bool":
        return {"max": operator.or_, "min": operator.and_}[site.name]
    extreme, where, signbit = map(site.library.function, (function_name, "where", "signbit"))
    if site.is_integer(site.dtype):
        return extreme
    records = site.library.records

    def run(x: AnyArray, y: AnyArray) -> Any:  # as in JAX, -0 is less than 0
        ordered_pair = (y, x) if function_name == "maximum" else (x, y)
        x_neg = 1 / x < 0 if records else signbit(x)  # 1 / x records fewer operators than signbit
        return where(x == y, where(x_neg, *ordered_pair), extreme(x, y))

    return run


@rule("sign")
def _sign(site: Site) -> Run:
    where, sign = site.library.function("where"), site.library.function("sign")
    if site.kind(site.dtype) != "float":
        return sign
    return lambda x: where((x != x) | (x == 0), x, sign(x))


@rule("round")
def _round(site: Site, rounding_method: int) -> Run:
    if rounding_method == 1:  # round halves to even
        return site.library.function("round")
    trunc, sign, where = map(site.library.function, ("trunc", "sign", "where"))

    def away_from_zero(x: AnyArray) -> Any:
        truncated = trunc(x)
        return where(abs(x - truncated) >= 0.5, truncated + sign(x), truncated)

    return away_from_zero


@rule("div")
def _div(site: Site) -> Run:
    if site.is_integer(site.dtype):
        return _quotient(site)
    if site.ins[1].shape != site.shape and site.dtype != "bfloat16":
        return lambda x, y: x * (1 / y)  # XLA computes the quotient by a scalar as this product
    return operator.truediv


@rule("rem")
def _rem(site: Site) -> Run:
    fmod, one = getattr(site.library.native, "fmod", None), site.library.full((), 1, site.dtype)
    if site.is_integer(site.dtype):
        quotient_of, where = _quotient(site), site.library.function("where")
        if fmod is None:
            return lambda x, y: x - quotient_of(x, y) * y
        is_unsigned = site.kind(site.dtype) == "uint"
        return lambda x, y: where(
            y == 0, x, fmod(x, where(y == 0 if is_unsigned else (y == 0) | (y == -1), one, y))
        )
    if fmod is not None:
        return fmod  # type: ignore[no-any-return]
    function_names = "where", "remainder", "signbit", "isinf"
    where, remainder, signbit, isinf = map(site.library.function, function_names)

    def run(x: AnyArray, y: AnyArray) -> Any:
        x, y, is_negative = abs(x), abs(y), signbit(x)
        result = where(isinf(y) & ~isinf(x), x, remainder(x, y))
        return where(is_negative, -result, result)

    return run


def _quotient(site: Site) -> Run:
    """Return a function that divides integers, and rounds towards 0. As in XLA, all bits of x / 0 are 1."""
    library, dtype = site.library, site.dtype
    where, signed = library.function("where"), site.kind(dtype) == "int"
    one, zero = library.full((), 1, dtype), library.full((), 0, dtype)
    all_bits = library.wrapped(~zero, dtype)

    def run(x: AnyArray, y: AnyArray) -> Any:
        divisor = where((y == 0) | (y == -1) if signed else y == 0, one, y)
        quotient = x // divisor
        if signed:
            is_inexact = x - quotient * divisor != 0
            quotient = quotient + library.cast(is_inexact & ((x < 0) != (divisor < 0)), dtype)
            quotient = where(y == -1, -x, quotient)
        return where(y == 0, all_bits, quotient)

    return run


@rule("pow")
def _pow(site: Site) -> Run:
    cast, where, dtype = site.library.cast, site.library.function("where"), site.dtype
    if site.kind(dtype) != "float":
        return lambda x, y: x ** cast(y, dtype)

    def power(x: AnyArray, y: AnyArray) -> Any:
        y = cast(y, dtype)
        # NumPy may compute x ** 0.5 by sqrt. This returns -0 for -0 and NaN for -inf, but JAX
        # returns 0 and inf
        return where((y == 0.5) & (x + x == x), abs(x), x) ** y

    return power


@rule("shift_left shift_right_logical shift_right_arithmetic")
def _shift(site: Site) -> Run:
    library, dtype, name = site.library, site.dtype, site.name
    where, bits, signed = library.function("where"), site.bits(dtype), site.kind(dtype) == "int"
    zero, one, last_shift = (library.full((), value, dtype) for value in (0, 1, bits - 1))
    # a number with only the sign bit set
    sign_bit = library.full((), 2 ** (bits - 1) * (-1 if signed else 1), dtype)
    is_arithmetic = name == "shift_right_arithmetic"
    shl, shr = map(library.function, ("bitwise_left_shift", "bitwise_right_shift"))

    def run(x: AnyArray, count: Any) -> Any:
        out_of_range = (count < 0) | (count >= bits) if signed else count >= bits
        count = where(out_of_range, last_shift if is_arithmetic else zero, count)
        if is_arithmetic:
            return (
                shr(x, count)
                if signed
                else library.wrapped(shr(x ^ sign_bit, count) - shr(sign_bit, count), dtype)
            )
        if name == "shift_left":
            shifted = library.wrapped(shl(x, count), dtype)
        else:
            shifted = shr(x, count)
            shifted = shifted & ~shl(shr(sign_bit, count), one) if signed else shifted
        return where(out_of_range, zero, shifted)

    return run


@rule("select_n", fresh=False)
def _select(site: Site) -> Run:
    where = site.library.function("where")
    if site.ins[0].dtype == "bool" and len(site.ins) == 3:
        return lambda selector, false_case, true_case: where(selector, true_case, false_case)

    def run(which: Any, *cases: Any) -> Any:
        selected = cases[0]
        for case_index, case in enumerate(cases[1:], 1):
            selected = where(which >= case_index, case, selected)
        return selected

    return run


@rule("convert_element_type", "weak_type sharding", fresh=False)
def _convert(site: Site, new_dtype: str) -> Run:
    library, old_dtype, dtype = site.library, site.ins[0].dtype, new_dtype
    cast = library.cast
    if dtype == "bool":
        return (lambda x: x) if old_dtype == "bool" else lambda x: x != 0
    if site.is_integer(dtype):
        if site.kind(old_dtype) == "float":
            return _saturating(site, old_dtype, dtype)
        if dtype in library.wider:
            return lambda x: library.wrapped(cast(x, dtype), dtype)
        if old_dtype in library.wider and site.kind(dtype) == "int" and site.bits(dtype) < 64:
            half_range, bit_mask = 2 ** (site.bits(dtype) - 1), 2 ** site.bits(dtype) - 1
            return lambda x: cast(((x + half_range) & bit_mask) - half_range, dtype)
    return lambda x: cast(x, dtype)


def _saturating(site: Site, old: str, new: str) -> Run:
    """Return a function that casts floats to integers.

    It rounds towards 0. Numbers out of range become the nearest limit of the dtype, and NaN becomes 0.
    """
    library = site.library
    cast, where = library.cast, library.function("where")
    low, high = site.edges(new)
    wide_dtype = "float64" if site.bits(old) == 64 or site.bits(new) > 16 else "float32"
    int_dtype = "int64" if site.bits(new) < 64 else new
    limits = library.full((), low, int_dtype), library.full((), high, int_dtype)
    zero = library.full((), 0.0, wide_dtype)

    def run(x: AnyArray) -> Any:
        x = cast(x, wide_dtype)
        in_range = cast(where((x > low) & (x < high), x, zero), int_dtype)
        return cast(where(x >= high, limits[1], where(x <= low, limits[0], in_range)), new)

    return run


@rule("bitcast_convert_type", fresh=False)
def _bitcast(site: Site, new_dtype: str) -> Run:
    bitcast, old_dtype = site.library.bitcast, site.ins[0].dtype
    if site.bits(old_dtype) != site.bits(new_dtype):
        raise NotImplementedError(f"{old_dtype} and {new_dtype} have different numbers of bits")
    return lambda x: bitcast(x, old_dtype, new_dtype)


rule("copy copy_p stop_gradient", fresh=False)(lambda site: lambda x: x)
rule("device_put optimization_barrier", "devices srcs copy_semantics", fresh=False)(
    lambda site: lambda *arrays: list(arrays)
)
