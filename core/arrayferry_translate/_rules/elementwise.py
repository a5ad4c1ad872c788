"""Primitives that compute each element by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ._rule import Run, Site, rule

OPERATORS: dict[str, Run] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "add": operator.add,
    "add_any": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "not": operator.invert,
}  # fmt: skip
ORDERS = operator.lt, operator.le, operator.gt, operator.ge
WIDENING = operator.add, operator.sub, operator.mul
"""What may have the dtype of its result as a parameter."""
FUNCTIONS = {
    name: name
    for name in ["abs", "floor", "ceil", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "expm1", "log", "log1p", "sqrt", "atan2", "nextafter"]
} | {"is_finite": "isfinite"}  # fmt: skip
"""The function of the standard for each primitive."""
SPECIAL = {"erf": "erf", "erfc": "erfc", "lgamma": "gammaln", "digamma": "psi"}
"""The function of SciPy."""


def _operator(run: Run) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        wrapped, dtype = site.library.wrapped, site.dtype
        if run in WIDENING and site.ins[0].dtype != dtype:
            raise NotImplementedError(f"with a result of {dtype}")
        if site.ins[0].dtype == "bool" and run in ORDERS:  # few libraries order bools
            cast = site.library.cast
            return lambda x, y: run(cast(x, "uint8"), cast(y, "uint8"))
        if dtype not in site.library.held or run in (operator.and_, operator.or_, operator.xor):
            return run
        return lambda *arrays: wrapped(run(*arrays), dtype)

    return make


def _special(name: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, dtype = site.library, site.dtype
        run, cast, where = library.special(name), library.cast, library.function("where")
        infinity, nan = (library.full((), float(text), dtype) for text in ("inf", "nan"))
        if name == "gammaln":
            return lambda x: where(x == -infinity, infinity, cast(run(x), dtype))
        if name == "psi":
            return lambda x: where(x == 0, nan, cast(run(x), dtype))
        return lambda x: cast(run(x), dtype)

    return make


def _function(name: str) -> Callable[[Site], Run]:
    return lambda site: site.library.function(name)


def _extreme(name: str, of_bools: Run) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        if site.kind(site.dtype) != "float":
            return of_bools if site.dtype == "bool" else site.library.function(name)
        extreme, where, signbit = map(site.library.function, (name, "where", "signbit"))

        def run(x: Any, y: Any) -> Any:  # -0 is less than 0
            ends = (y, x) if name == "maximum" else (x, y)
            return where(x == y, where(signbit(x), *ends), extreme(x, y))

        return run

    return make


for _primitive, _run in OPERATORS.items():
    rule(_primitive, ignored="out_dtype")(_operator(_run))
for _primitive, _name in FUNCTIONS.items():
    rule(_primitive, ignored="accuracy input_dtype")(_function(_name))
for _primitive, _name in SPECIAL.items():
    rule(_primitive, ignored="accuracy")(_special(_name))
rule("max")(_extreme("maximum", operator.or_))
rule("min")(_extreme("minimum", operator.and_))


@rule("sign")
def _sign(site: Site) -> Run:
    where, sign = site.library.function("where"), site.library.function("sign")
    if site.kind(site.dtype) != "float":
        return sign
    return lambda x: where((x != x) | (x == 0), x, sign(x))


@rule("round", "rounding_method")
def _round(site: Site) -> Run:
    if site.params["rounding_method"] == 1:  # to even
        return site.library.function("round")
    trunc, sign, where = map(site.library.function, ("trunc", "sign", "where"))

    def away_from_zero(x: Any) -> Any:
        whole = trunc(x)
        return where(abs(x - whole) >= 0.5, whole + sign(x), whole)

    return away_from_zero


@rule("div")
def _div(site: Site) -> Run:
    if site.is_integer(site.dtype):
        return _integer_division(site)[0]
    if site.ins[1].shape != site.shape and site.dtype != "bfloat16":
        return lambda x, y: x * (1 / y)  # as XLA divides by a scalar
    return operator.truediv


@rule("rem")
def _rem(site: Site) -> Run:
    if site.is_integer(site.dtype):
        return _integer_division(site)[1]
    if hasattr(site.library.native, "fmod"):
        return site.library.native.fmod  # type: ignore[no-any-return]
    where, remainder, signbit, isinf = map(
        site.library.function, ("where", "remainder", "signbit", "isinf")
    )

    def run(x: Any, y: Any) -> Any:
        x, y, negative = abs(x), abs(y), signbit(x)
        rest = where(isinf(y) & ~isinf(x), x, remainder(x, y))
        return where(negative, -rest, rest)

    return run


def _integer_division(site: Site) -> tuple[Run, Run]:
    """Return the quotient, rounded to 0, and the remainder. By 0 these are -1 and the dividend, as in XLA."""
    library, dtype = site.library, site.dtype
    where, signed = library.function("where"), site.kind(dtype) == "int"
    one, zero = library.full((), 1, dtype), library.full((), 0, dtype)
    ones = library.wrapped(~zero, dtype)

    def safe(y: Any) -> Any:
        return where((y == 0) | (y == -1) if signed else y == 0, one, y)

    def divided(x: Any, y: Any) -> Any:
        divisor = safe(y)
        quotient = x // divisor
        if signed:
            inexact = x - quotient * divisor != 0
            quotient = quotient + library.cast(inexact & ((x < 0) != (divisor < 0)), dtype)
            quotient = where(y == -1, -x, quotient)
        return where(y == 0, ones, quotient)

    def remaining(x: Any, y: Any) -> Any:
        divisor = safe(y)
        rest = x % divisor
        if signed:
            rest = where((rest != 0) & ((x < 0) != (divisor < 0)), rest - divisor, rest)
            rest = where(y == -1, zero, rest)
        return where(y == 0, x, rest)

    return divided, remaining


@rule("pow")
def _pow(site: Site) -> Run:
    cast, dtype = site.library.cast, site.dtype
    return lambda x, y: x ** cast(y, dtype)


def _shift(name: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, dtype = site.library, site.dtype
        where, bits, signed = library.function("where"), site.bits(dtype), site.kind(dtype) == "int"
        if name == "shift_right_arithmetic" and not signed:
            return _with_sign(site, make)
        zero, one = library.full((), 0, dtype), library.full((), 1, dtype)
        most = library.full((), 2 ** (bits - 1) - 1, dtype)

        def run(x: Any, count: Any) -> Any:
            outside = (count < 0) | (count >= bits) if signed else count >= bits
            count = where(outside, zero, count)
            if name == "shift_left":
                return where(outside, zero, library.wrapped(x << count, dtype))
            if not signed:
                return where(outside, zero, x >> count)
            if name == "shift_right_arithmetic":
                return where(outside, x >> (bits - 1), x >> count)
            rest = ((x >> one) & most) >> where(count > 0, count - one, zero)
            return where(outside, zero, where(count > 0, rest, x))

        return run

    return make


def _with_sign(site: Site, make: Callable[[Site], Run]) -> Run:
    """Return a function of signed integers for the same bits without a sign."""
    dtype, signed = site.dtype, site.dtype.removeprefix("u")
    specs = [tuple(spec._replace(dtype=signed) for spec in row) for row in (site.ins, site.outs)]
    run = make(site._replace(ins=specs[0], outs=specs[1]))
    to = _convert(site._replace(params={"new_dtype": signed}))
    back = _convert(site._replace(ins=specs[0], params={"new_dtype": dtype}))
    return lambda *arrays: back(run(*map(to, arrays)))


for _primitive in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
    rule(_primitive)(_shift(_primitive))


@rule("select_n", fresh=False)
def _select(site: Site) -> Run:
    where = site.library.function("where")
    if len(site.ins) == 2:
        return lambda which, case: case
    if site.ins[0].dtype == "bool":
        return lambda which, first, second: where(which, second, first)

    def run(which: Any, *cases: Any) -> Any:
        chosen = cases[0]
        for number, case in enumerate(cases[1:], 1):
            chosen = where(which >= number, case, chosen)
        return chosen

    return run


@rule("convert_element_type", "new_dtype", "weak_type sharding", fresh=False)
def _convert(site: Site) -> Run:
    library, old, new = site.library, site.ins[0].dtype, site.params["new_dtype"]
    cast = library.cast
    if new == "bool":
        return (lambda x: x) if old == "bool" else lambda x: x != 0
    if site.is_integer(new):
        if site.kind(old) == "float":
            return _saturating(site, old, new)
        if new in library.held:
            return lambda x: library.wrapped(cast(x, new), new)
        if old in library.held and site.kind(new) == "int" and site.bits(new) < 64:
            half, most = 2 ** (site.bits(new) - 1), 2 ** site.bits(new) - 1
            return lambda x: cast(((x + half) & most) - half, new)
    return lambda x: cast(x, new)


def _saturating(site: Site, old: str, new: str) -> Run:
    """Return the cast of floats to integers: towards 0, to the next that fits, and of NaN to 0."""
    library = site.library
    cast, where = library.cast, library.function("where")
    least, most = site.limits(new).min, site.limits(new).max
    wide = "float64" if site.bits(old) == 64 or site.bits(new) > 16 else "float32"
    whole = "int64" if site.bits(new) < 64 else new
    ends = library.full((), least, whole), library.full((), most, whole)
    zero = library.full((), 0.0, wide)

    def run(x: Any) -> Any:
        x = cast(x, wide)
        inside = cast(where((x > least) & (x < most), x, zero), whole)
        return cast(where(x >= most, ends[1], where(x <= least, ends[0], inside)), new)

    return run


@rule("bitcast_convert_type", "new_dtype", fresh=False)
def _bitcast(site: Site) -> Run:
    library, old, new = site.library, site.ins[0].dtype, site.params["new_dtype"]
    if site.bits(old) != site.bits(new):
        raise NotImplementedError(f"bits of {old} as {new}, which has another size")
    return lambda x: library.bitcast(x, old, new)


@rule("copy copy_p stop_gradient", fresh=False)
def _same(site: Site) -> Run:
    return lambda x: x


@rule("device_put optimization_barrier", "", "devices srcs copy_semantics", fresh=False)
def _all_same(site: Site) -> Run:
    return lambda *arrays: list(arrays)
