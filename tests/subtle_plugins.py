"""Plugins that are wrong for few arrays only: of one layout, dtype, size or number, or from the second call on.

`SUBTLE` has for each the parts that are registered, the backend first, and words of the first message of the
contract kit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from toys import Array, Correct, CorrectImmutable, CorrectLazy

import arrayferry as af

MANY = 8 * 2**20


def backend(base=Correct, **members: Any) -> af.Backend:
    """Return a toy backend with some methods and attributes of its own."""
    return type("Wrong", (base,), members)()


def direct(ends="toy numpy", **members: Any) -> af.Converter:
    """Return a converter from or to the toy library, with some methods of its own."""
    source, target = ends.split()
    to_toy = target == "toy"

    def convert(self, x, device=None, copy=None):
        if to_toy and not is_ordinary(x):
            return NotImplemented
        values = x if to_toy else x.values
        values = values.copy() if copy else values
        return Array(values) if to_toy else values

    def bind(self, options):
        return lambda x: self.convert(x, None, options.copy)

    methods = {"convert": convert, "bind": bind, "source": source, "target": target}
    return type("Direct", (af.Converter,), {**methods, "cost": "share", **members})()


# What goes wrong with an array of NumPy.


def scrambled(x):
    """Read memory in the order in which it lies."""
    return np.ravel(x, order="K").reshape(x.shape).copy()


def is_number(x):
    return x.dtype.kind in "?biufc" and x.flags.writeable


def is_ordinary(x):
    """Tell whether an array of NumPy is one that `from_numpy` takes."""
    native = x.dtype.isnative and x.flags.aligned and min(x.strides, default=0) >= 0
    return native and type(x) is np.ndarray and is_number(x)


def if_(condition, wrong, right=lambda x: x):
    return lambda x: wrong(x) if condition(x) else right(x)


def is_cube(x):
    return x.ndim > 2


def is_fortran(x):
    return x.ndim > 2 and x.flags.f_contiguous and not x.flags.c_contiguous


def is_neither(x):
    return not (x.flags.c_contiguous or x.flags.f_contiguous)


def is_permuted(x):
    return is_neither(x) and np.ravel(x, order="K").base is not None


def to_seconds(x):
    return x.astype(f"{x.dtype.kind}8[s]").astype(x.dtype) if x.dtype.kind in "mM" else x


def through_float(x):
    with np.errstate(all="ignore"):
        return x.astype("f8").astype(x.dtype) if x.dtype.kind in "iu" else x


def without_sign_of_zero(x):
    return x + np.zeros((), x.dtype) if x.dtype.kind == "f" else x


def narrowed_cube(x):
    return x.astype("f4") if x.dtype == "f8" and x.ndim == 3 else x


def raw(x):
    """Take bytes of another order for those of this machine."""
    return x.view(x.dtype.newbyteorder("=")) if not x.dtype.isnative else x


def forwards(x):
    """Take negative strides for positive ones."""
    return x[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in x.strides)]


def remembering(function=lambda x: x, key=lambda x: (x.shape, x.dtype.str)):
    """Return what was returned for the first array that looks the same."""
    known: dict[Any, Any] = {}
    return lambda x: known.setdefault(key(x), np.array(function(x))).copy()


def into_one_buffer():
    """Write all arrays of a shape and dtype into the same memory."""
    buffers: dict[Any, Any] = {}

    def function(x):
        buffer = buffers.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))
        buffer[...] = x
        return buffer

    return function


def seen_before(xs, known={}):  # noqa: B006
    """Return what the first arrays of these shapes were."""
    return [known.setdefault((n, len(xs), x.shape, x.dtype), x.copy()) for n, x in enumerate(xs)]


def from_call(number, wrong):
    """Go wrong from a call on."""
    calls: list[int] = []

    def function(x):
        calls.append(1)
        return wrong(x) if len(calls) >= number else x

    return function


def once_seen(wrong):
    """Go wrong for an object that was seen before."""
    seen: list[Any] = []

    def function(x):
        if any(x is each for each in seen):
            return wrong(x)
        seen.append(x)
        return x

    return function


def reading(function, **members):
    """Return a backend whose `to_numpy` changes values."""
    return backend(
        **{"to_numpy_shares": None, "to_numpy": lambda self, x: function(x.values), **members}
    )


def making(function, **members):
    """Return a backend whose `from_numpy` changes values."""
    made = {
        "from_numpy_shares": None,
        "from_numpy": lambda self, x, device=None: Array(function(x), device or "cpu"),
    }
    return backend(**{**made, **members})


def copying(function, **members):
    """Return a backend whose `copy` changes values."""
    return backend(copy=lambda self, x: Array(function(x.values), x.device), **members)


def aliasing(condition):
    """Return a backend whose `copy` does not copy some arrays."""
    return copying(lambda x: x if condition(x) else x.copy())


def converting(function, ends="numpy toy", takes=is_ordinary, **members):
    """Return a backend and a converter that changes values."""

    def convert(self, x, device=None, copy=None):
        if ends == "numpy toy" and not takes(x):
            return NotImplemented
        values = x if ends == "numpy toy" else x.values
        found = function(values)
        found = found.copy() if copy and found is values else found
        return Array(found) if ends == "numpy toy" else found

    return Correct(), direct(ends, convert=convert, **members)


def ignoring(condition, ends="numpy toy"):
    """Return a backend and a converter that ignores `copy=True` for some arrays."""

    def convert(self, x, device=None, copy=None):
        if ends == "numpy toy" and not is_ordinary(x):
            return NotImplemented
        values = x if ends == "numpy toy" else x.values
        values = values.copy() if copy and not condition(values) else values
        return Array(values) if ends == "numpy toy" else values

    return Correct(), direct(ends, convert=convert)


def written(result, **names):
    names["ordinary"] = lambda x: not isinstance(x, np.ndarray) or is_ordinary(x)
    return lambda self, options: (
        None if options.copy else af.Inline("{ordinary}({x})", result, names)
    )


def many(function):
    def bind_many(self, options):
        return None if options.copy else function

    return bind_many


def large(x):
    return x.nbytes > MANY


def all_types():
    return {"dtypes": lambda self: None}


def immutable(**members):
    return backend(CorrectImmutable, **members)


def read_only(x, condition=lambda x: True):
    view = x.view()
    view.flags.writeable = not condition(x)
    return view


def lock(x):
    x.flags.writeable = not is_fortran(x)
    return x


def misordered(xs):
    return xs[::-1] if len(xs) > 16 else xs


def promoted(arrays):
    """Bring many arrays to one dtype, as `numpy.concatenate` does."""
    dtype = np.result_type(*{x.dtype for x in arrays}) if arrays else None
    return [x.astype(dtype) for x in arrays]


def to_toys(function):
    return lambda xs: [Array(x.copy()) if is_ordinary(x) else NotImplemented for x in function(xs)]


class Second(Correct):
    """Its second device reads arrays in the order in which they lie."""

    from_numpy_shares = None

    def from_numpy(self, x, device=None):
        return Array(scrambled(x) if device == "toy:1" else x, device or "cpu")


class ComputesManyInAnyOrder(CorrectLazy):
    def compute(self, xs):
        return super().compute(misordered(xs))


class ComputesLargeInPlace(CorrectLazy):
    def compute(self, xs):
        return [x.values if x.values.ndim == 3 else x.values.copy() for x in xs]


class AddressOfTheWhole(Correct):
    def address(self, x):
        whole = x.values if x.values.base is None else x.values.base
        return whole.__array_interface__["data"][0] if x.values.ndim == 3 else x.values.ctypes.data


READS, MAKES, COPIES = "to_numpy(), for", "from_numpy(), for", "copy(), for"
LARGE, MUST_NOT = "16,777,216 bytes", "which must not change"

SUBTLE: dict[str, tuple[Any, ...]] = {
    # copies that are none
    "copies alias what is not contiguous": (aliasing(is_neither), "copy(), for an array", "after the source was written to"),
    "copies alias Fortran order": (aliasing(is_fortran), "copy(), for an array", "after the source was written to"),
    "copies alias permuted axes": (aliasing(is_permuted), "copy(), for an array", "after the source was written to"),
    "copies alias all but C order": (aliasing(lambda x: not x.flags.c_contiguous), "copy(), for an array", "after the source was written to"),
    "copies alias large arrays": (aliasing(large), "copy(), for an array", LARGE),
    "copies alias single elements": (aliasing(lambda x: x.size == 1), "copy(), for an array", "after the source was written to"),
    "copies scramble Fortran order": (copying(if_(is_fortran, scrambled, np.copy)), COPIES, "Fortran"),
    "copies narrow cubes of doubles": (copying(lambda x: narrowed_cube(x).copy()), COPIES, "float64"),
    "copies cut dates": (copying(lambda x: to_seconds(x).copy(), **all_types()), COPIES, "datetime64"),
    "copies lose signs of zeros": (copying(without_sign_of_zero), COPIES, "-0.0"),
    "copies lose uint64": (copying(lambda x: through_float(x).copy()), COPIES, "special values"),
    "copies remember shapes": (copying(remembering()), COPIES, "number 2 of 2"),
    "copies use one buffer for cubes": (
        copying(if_(is_cube, into_one_buffer(), np.copy)), COPIES, "number 1 of 2",
    ),
    # to_numpy
    "reads Fortran order as it lies": (reading(if_(is_fortran, scrambled)), READS, "Fortran"),
    "reads permuted axes as they lie": (reading(if_(is_permuted, scrambled)), READS, "axes in the order"),
    "reads Fortran order of doubles as it lies": (
        reading(if_(lambda x: is_fortran(x) and x.dtype == "f8", scrambled)), READS, "float64", "Fortran",
    ),
    "reads Fortran order of bools as it lies": (
        reading(if_(lambda x: is_fortran(x) and x.dtype == "?", scrambled)), READS, "bool", "Fortran",
    ),
    "reads strided arrays from their beginning": (
        reading(if_(lambda x: is_neither(x) and not is_permuted(x), lambda x: np.full_like(x, x.flat[0]))),
        READS, "strided",
    ),
    "reads four dimensions as they lie": (
        reading(if_(lambda x: x.ndim == 4 and not x.flags.c_contiguous, scrambled)), READS, "(2, 3, 2, 3)",
    ),
    "reads arrays inside of larger ones": (
        reading(if_(lambda x: x.ndim == 3 and x.base is not None and is_neither(x) and x.strides[-1] == x.itemsize,
                    scrambled)), READS,
    ),
    "reads empty arrays flat": (
        reading(if_(lambda x: x.size == 0 and x.ndim > 1, lambda x: x.reshape(0))), READS, "shape (0,) instead",
    ),
    "reads other bytes": (
        reading(lambda x: x.astype(x.dtype.newbyteorder(">")) if x.dtype.kind in "if" else x),
        READS, "dtype >f",
    ),
    "reads narrow cubes of doubles": (reading(narrowed_cube), READS, "dtype float32 instead of float64"),
    "reads dates in seconds": (reading(to_seconds, **all_types()), READS, "datetime64"),
    "reads time spans in seconds": (
        reading(lambda x: to_seconds(x) if x.dtype.kind == "m" else x, **all_types()), READS, "timedelta64",
    ),
    "reads dates as numbers": (
        reading(lambda x: x.view("i8") if x.dtype.kind == "M" else x, **all_types()), READS, "dtype int64",
    ),
    "reads text cut": (
        reading(lambda x: x.astype("U2").astype(x.dtype) if x.dtype.kind == "U" else x, **all_types()),
        READS, "str",
    ),
    "reads uint64 through floats": (reading(through_float), READS, "special values"),
    "reads the same again": (reading(remembering()), READS, "number 2 of 2"),
    "reads zeros the second time": (reading(once_seen(np.zeros_like)), READS),
    "reads zeros from the hundredth call on": (reading(from_call(100, np.zeros_like)), READS),
    "reads into one buffer for cubes": (
        reading(if_(is_cube, into_one_buffer())), READS, "number 1 of 2",
    ),
    "reads large arrays wrong": (reading(if_(large, np.zeros_like)), READS, LARGE),
    "says that it copies and shares what is large": (
        reading(lambda x: x if large(x) else x.copy(), to_numpy_shares=False), LARGE, "to_numpy",
    ),
    "says that it shares and copies what is large": (
        reading(lambda x: x.copy() if large(x) else x, to_numpy_shares=True), LARGE, "to_numpy_shares is True",
    ),
    "says that it copies and shares Fortran order": (
        reading(lambda x: x if is_fortran(x) else x.copy(), to_numpy_shares=False), "to_numpy", "Fortran",
    ),
    "says that it shares and copies Fortran order": (
        reading(lambda x: np.ascontiguousarray(x).reshape(x.shape), to_numpy_shares=True), READS, "to_numpy_shares is True",
    ),
    "read-only copies of cubes": (
        reading(lambda x: read_only(x.copy(), lambda x: x.ndim == 3), to_numpy_shares=False), "read-only array",
    ),
    "writable views of what never changes, if strided": (
        immutable(to_numpy=lambda self, x: x.values if is_neither(x.values) else read_only(x.values),
                  from_numpy=lambda self, x, device=None: Array(np.array(x, order="K") if not is_neither(x) else
                                                                np.concatenate([x, x], -1)[..., : x.shape[-1]],
                                                                device or "cpu")),
        "the source, which must not change", "made by from_numpy()",
    ),
    "writable views of what never changes, if large": (
        immutable(to_numpy=lambda self, x: x.values if large(x.values) else read_only(x.values)), LARGE,
    ),
    # from_numpy
    "makes Fortran order as it lies": (making(if_(is_fortran, scrambled)), MAKES, "Fortran"),
    "makes permuted axes as they lie": (making(if_(is_permuted, scrambled)), MAKES, "axes in the order"),
    "makes Fortran order of doubles as it lies": (
        making(if_(lambda x: is_fortran(x) and x.dtype == "f8", scrambled)), MAKES, "float64", "Fortran",
    ),
    "makes complex numbers in Fortran order as they lie": (
        making(if_(lambda x: is_fortran(x) and x.dtype.kind == "c", scrambled)), MAKES, "complex", "Fortran",
    ),
    "makes four dimensions as they lie": (
        making(if_(lambda x: x.ndim == 4 and not x.flags.c_contiguous, scrambled)), MAKES, "(2, 3, 2, 3)",
    ),
    "makes strided arrays from their beginning": (
        making(if_(lambda x: is_neither(x) and not is_permuted(x), lambda x: np.full_like(x, x.flat[0]))),
        MAKES, "strided",
    ),
    "makes narrow cubes of doubles": (making(narrowed_cube), MAKES, "dtype float32 instead of float64"),
    "makes dates in seconds": (making(to_seconds, **all_types()), MAKES, "datetime64"),
    "makes no missing dates": (
        making(lambda x: np.where(np.isnat(x), np.zeros((), x.dtype), x) if x.dtype.kind in "mM" else x,
               **all_types()), MAKES, "NaT",
    ),
    "makes integers through floats": (making(through_float), MAKES, "special values"),
    "makes the same again": (making(remembering()), MAKES, "number 2 of 2"),
    "makes large arrays wrong": (making(if_(large, np.zeros_like)), MAKES, LARGE),
    "locks Fortran order": (making(lock), MAKES, "its argument was changed"),
    "zeroes Fortran order": (
        making(lambda x: (lambda y: (x.fill(0), y)[1])(x.copy()) if is_fortran(x) else x.copy()),
        MAKES, "its argument was changed",
    ),
    "says that making copies and shares what is large": (
        making(lambda x: x if large(x) else x.copy(), from_numpy_shares=False), LARGE, "from_numpy_shares",
    ),
    "says that making copies and shares what is large and never changes": (
        immutable(from_numpy=lambda self, x, device=None: Array(x if large(x) else x.copy(), device or "cpu")),
        LARGE, "from_numpy_shares",
    ),
    "says that making copies and shares Fortran order": (
        making(lambda x: x if is_fortran(x) else x.copy(), from_numpy_shares=False), "from_numpy", "Fortran",
    ),
    "says that making shares and copies Fortran order": (
        making(lambda x: np.ascontiguousarray(x).reshape(x.shape), from_numpy_shares=True), MAKES, "from_numpy_shares is True",
    ),
    "says that making shares and copies what is large": (
        making(lambda x: x.copy() if large(x) else x, from_numpy_shares=True), LARGE, "from_numpy_shares is True",
    ),
    # direct converters
    "converts Fortran order as it lies": (*converting(if_(is_fortran, scrambled)), "() of <Converter", "Fortran"),
    "converts permuted axes as they lie": (*converting(if_(is_permuted, scrambled)), "() of <Converter", "axes"),
    "converts out of Fortran order as it lies": (
        *converting(if_(is_fortran, scrambled), "toy numpy"), "() of <Converter", "Fortran",
    ),
    "converts four dimensions as they lie": (
        *converting(if_(lambda x: x.ndim == 4 and not x.flags.c_contiguous, scrambled)), "() of <Converter", "(2, 3, 2, 3)",
    ),
    "converts with narrow cubes": (*converting(narrowed_cube), "() of <Converter", "float64"),
    "converts with narrow cubes, out": (*converting(narrowed_cube, "toy numpy"), "() of <Conv", "float64"),
    "converts dates in seconds": (
        backend(**all_types()), converting(to_seconds, takes=lambda x: x.dtype.isnative and x.flags.writeable)[1], "() of <Converter", "datetime64",
    ),
    "converts without the sign of zero": (*converting(without_sign_of_zero), "() of <Conv", "special"),
    "converts uint64 through floats": (*converting(through_float, "toy numpy"), "() of <C", "special"),
    "converts bools to ones": (
        *converting(lambda x: np.ones_like(x) if x.dtype == "?" else x), "() of <Converter", "bool",
    ),
    "converts other bytes as they are": (
        *converting(raw, takes=is_number), "() of <Converter", "big-endian",
    ),
    "converts negative strides as positive ones": (
        *converting(forwards, takes=lambda x: x.dtype.isnative and is_number(x)), "() of <Converter", "reversed",
    ),
    "converts the same again": (*converting(remembering()), "() of <Converter", "instead of"),
    "converts zeros the second time": (*converting(from_call(2, np.zeros_like)), "() of <Converter"),
    "converts large arrays wrong": (*converting(if_(large, np.zeros_like)), LARGE),
    "is wrong when bound": (
        Correct(),
        direct("numpy toy", bind=lambda self, o: lambda x: Array(scrambled(x)) if is_ordinary(x) else NotImplemented),
        "bind() of",
    ),
    "is wrong when written into code": (
        Correct(),
        direct("numpy toy", inline=written("{make}({x})", make=lambda x: Array(np.zeros_like(x)))),
        "inline() of", "instead of",
    ),
    "is wrong when written into code, for Fortran order": (
        Correct(),
        direct("numpy toy", inline=written("{make}({x})", make=lambda x: Array(if_(is_fortran, scrambled)(x)))),
        "inline() of", "Fortran",
    ),
    "is another library's when written into code": (
        Correct(), direct("toy numpy", inline=written("{x}")), "inline() of", "an array of toy instead of numpy",
    ),
    "is wrong for many": (
        Correct(), direct("numpy toy", bind_many=many(to_toys(misordered))), "bind_many() of", "instead",
    ),
    "is of one dtype for many": (
        Correct(), direct("numpy toy", bind_many=many(to_toys(promoted))), "bind_many() of", "dtype",
    ),
    "is wrong for many that it has seen": (
        Correct(),
        direct("numpy toy", bind_many=many(to_toys(seen_before))),
        "bind_many() of", "instead",
    ),
    "does not copy what is not contiguous": (*ignoring(is_neither), "copy=True"),
    "does not copy Fortran order": (*ignoring(is_fortran), "copy=True"),
    "does not copy Fortran order, out": (*ignoring(is_fortran, "toy numpy"), "copy=True"),
    "does not copy what is large": (*ignoring(large), LARGE, "copy=True"),
    "does not copy what is large, out": (*ignoring(large, "toy numpy"), "copy=True", LARGE),
    "shares with what never changes": (
        CorrectImmutable(), direct("numpy toy"), "() of <Converter numpy -> toy>", MUST_NOT,
    ),
    "shares what never changes": (CorrectImmutable(), direct("toy numpy"), "() of <Converter toy -> numpy>", MUST_NOT),
    "shares what is large with what never changes": (
        CorrectImmutable(),
        direct("numpy toy", convert=lambda self, x, device=None, copy=None: Array(
            x if large(x) and not copy else x.copy()) if is_ordinary(x) else NotImplemented),
        LARGE, MUST_NOT,
    ),
    # many
    "reads many in another order": (
        backend(to_numpy_many=lambda self, xs: [x.values for x in misordered(xs)]), "to_numpy_many()",
    ),
    "reads many of one dtype": (
        backend(to_numpy_many=lambda self, xs: promoted([x.values for x in xs])), "to_numpy_many()", "dtype",
    ),
    "reads many that it has seen": (
        backend(to_numpy_many=lambda self, xs: seen_before([x.values for x in xs])), "to_numpy_many()",
    ),
    "reads none of many": (
        backend(to_numpy_many=lambda self, xs: [x.values for x in xs] if xs else None), "to_numpy_many()",
    ),
    "computes many in another order": (ComputesManyInAnyOrder(), "compute(), for", "instead of"),
    "computes cubes in place": (ComputesLargeInPlace(), "to_numpy() by convert(", "the result was written to"),
    # the rest
    "the address of the whole": (AddressOfTheWhole(), "address(), for"),
    "another device": (Second(), "from_numpy(x, 'toy:1')"),
}  # fmt: skip
"""The parts of each wrong plugin, the backend first, and words of the first message."""
