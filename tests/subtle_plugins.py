"""Plugins that are wrong for few arrays only: of one layout, dtype, size or number, or from the second call on.

`SUBTLE` has for each the parts that are registered, the backend first, and words of the first message of the
contract kit.
"""

import itertools
from typing import Any

import numpy as np
from toys import Array, Correct, CorrectImmutable, CorrectLazy, ToyDevices

import arrayferry as af

MANY = 8 * 2**20


def backend(base=Correct, **members: Any) -> af.Backend:
    """Return a toy backend with some methods and attributes of its own."""
    return type("Wrong", (base,), members)()


def devices(**members: Any) -> af.Devices:
    """Return the devices of the toy library with some methods of their own."""
    return type("Wrong", (ToyDevices,), members)()


def placing(**members: Any) -> af.Backend:
    """Return a toy backend whose devices have some methods of their own."""
    return backend(devices=devices(**members))


def answers(**members: Any) -> dict[str, Any]:
    """Return methods that give one answer each, whatever they are asked."""
    return {name: lambda *_, answer=answer: answer for name, answer in members.items()}


def dlpack(**members: Any) -> af.DLPack:
    """Return an exchange by DLPack with some methods and attributes of its own, in host memory."""
    return type("Wrong", (af.DLPack,), {"kinds": ("cpu",), **members})()


def direct(ends="toy numpy", change=lambda x: x, copies=np.copy, **members: Any) -> af.Converter:
    """Return a converter from or to the toy library that changes values, or has methods of its own."""
    source, target = ends.split()
    to_toy = target == "toy"
    takes = members.pop("takes", is_ordinary)

    def convert(self, x, device=None, copy=None):
        if to_toy and not takes(x):
            return NotImplemented
        values = x if to_toy else x.values
        found = change(values)
        found = copies(found) if copy and found is values else found
        return Array(found) if to_toy else found

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


def is_ordinary_or_date(x):
    return is_ordinary(x) or (x.dtype.kind in "mM" and x.dtype.isnative and x.flags.writeable)


def if_(condition, wrong, right=lambda x: x):
    return lambda x: wrong(x) if condition(x) else right(x)


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


def remembering():
    """Return what was returned for the first array that looks the same."""
    known: dict[Any, Any] = {}
    return lambda x: known.setdefault((x.shape, x.dtype.str), np.array(x)).copy()


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
    calls = itertools.count(1)
    return lambda x: wrong(x) if next(calls) >= number else x


def once_seen(wrong):
    """Go wrong for an object that was seen before."""
    seen: list[Any] = []

    def function(x):
        known = any(x is each for each in seen)
        seen.append(x)
        return wrong(x) if known else x

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


def of_its_own(change):
    """Return a function whose results have no memory of its argument."""
    return lambda x: found.copy() if np.may_share_memory(found := change(x), x) else found


def written(result, **names):
    names["ordinary"] = lambda x: not isinstance(x, np.ndarray) or is_ordinary(x)
    return lambda self, options: (
        None if options.copy else af.Inline("{ordinary}({x})", result, names)
    )


def many(function):
    def bind_many(self, options):
        return None if options.copy else function

    return bind_many


def made_together(change):
    """Return a correct backend, and a converter that changes many arrays at once."""
    return Correct(), direct("numpy toy", bind_many=many(to_toys(change)))


def read_together(change):
    """Return a backend that changes many values at once."""
    return backend(to_numpy_many=lambda self, xs: change([x.values for x in xs]))


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


class AddressOfTheWhole(Correct):
    def address(self, x):
        whole = x.values if x.values.base is None else x.values.base
        return whole.__array_interface__["data"][0] if x.values.ndim == 3 else x.values.ctypes.data


# What is wrong in the same ways in each method.

READS, MAKES, COPIES = (f"{method}(), for" for method in ("to_numpy", "from_numpy", "copy"))
CONVERTS = "() of <Converter"
METHODS = {
    "reads": (lambda change: [reading(change, **all_types())], READS),
    "makes": (lambda change: [making(change, **all_types())], MAKES),
    "copies": (lambda change: [copying(of_its_own(change), **all_types())], COPIES),
    "converts": (
        lambda change: [backend(**all_types()), direct("numpy toy", change, takes=is_ordinary_or_date)], CONVERTS,
    ),
    "converts out": (lambda change: [backend(**all_types()), direct("toy numpy", change)], CONVERTS),
}  # fmt: skip
"""How each method is written so that it changes the values, and how the message begins."""
LARGE, MUST_NOT = "16,777,216 bytes", "which is constant, must not change"
CHANGES = {
    "Fortran order as it lies": (lambda: if_(is_fortran, scrambled), "Fortran"),
    "permuted axes as they lie": (lambda: if_(is_permuted, scrambled), "axes in the order"),
    "four dimensions as they lie": (
        lambda: if_(lambda x: x.ndim == 4 and not x.flags.c_contiguous, scrambled), "(2, 3, 2, 3)",
    ),
    "strided arrays from their beginning": (
        lambda: if_(lambda x: is_neither(x) and not is_permuted(x), lambda x: np.full_like(x, x.flat[0])),
        "strided",
    ),
    "zeros for broadcast arrays": (
        lambda: if_(lambda x: x.size > 1 and 0 in x.strides, np.zeros_like), "broadcast",
    ),
    "narrow cubes of doubles": (lambda: narrowed_cube, "dtype float32 instead of float64"),
    "dates in seconds": (lambda: to_seconds, "datetime64"),
    "time spans in seconds": (lambda: lambda x: to_seconds(x) if x.dtype.kind == "m" else x, "timedelta64"),
    "no missing dates": (
        lambda: lambda x: np.where(np.isnat(x), np.zeros((), x.dtype), x) if x.dtype.kind in "mM" else x, "NaT",
    ),
    "zeros without their sign": (lambda: without_sign_of_zero, "special values", "-0.0"),
    "integers through floats": (lambda: through_float, "special values"),
    "bools as ones": (lambda: lambda x: np.ones_like(x) if x.dtype == "?" else x, "bool"),
    "the same again": (remembering,),
    "zeros from the second call on": (lambda: from_call(2, np.zeros_like),),
    "cubes in one buffer": (lambda: if_(lambda x: x.ndim > 2, into_one_buffer()), "number 1 of 2"),
    "large arrays wrong": (lambda: if_(large, np.zeros_like), LARGE),
}  # fmt: skip
SHARING = {
    "large": (large, LARGE),
    "in Fortran order": (is_fortran, "Fortran"),
    "of permuted axes": (is_permuted,),
    "a single element": (lambda x: x.size == 1,),
}
"""Which arrays share memory that must not, or do not though they must."""

SUBTLE: dict[str, tuple[Any, ...]] = {
    **{
        f"{method} {what}": (*make(change()), begin, *words)
        for method, (make, begin) in METHODS.items()
        for what, (change, *words) in CHANGES.items()
    },
    **{
        f"{method} {dtype} in Fortran order as it lies": (
            make(if_(lambda x, dtype=dtype: is_fortran(x) and x.dtype == dtype, scrambled)), dtype, "Fortran",
        )
        for method, make in (("reads", reading), ("makes", making))
        for dtype in ("float64", "bool", "complex128")
    },
    **{
        f"copies alias what is {what}": (copying(if_(shares, lambda x: x, np.copy)), COPIES, *words)
        for what, (shares, *words) in SHARING.items()
    },
    **{
        f"a converter {ends} does not copy what is {what}": (
            Correct(), direct(ends, copies=if_(shares, lambda x: x, np.copy)), "copy=True", *words,
        )
        for ends in ("numpy toy", "toy numpy")
        for what, (shares, *words) in [*SHARING.items()][:3]
    },
    **{
        f"says that {method} {both} what is {what}": (
            make(if_(shares, *ways), **{f"{method}_shares": stated}), f"{method}{told}", *words,
        )
        for both, stated, told, *ways in (
            ("copies and shares", False, "", lambda x: x, np.copy),
            ("shares and copies", True, "_shares is True", np.copy),
        )
        for method, make in (("to_numpy", reading), ("from_numpy", making))
        for what, (shares, *words) in [*SHARING.items()][:2]
    },
    # to_numpy
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
    "reads dates as numbers": (
        reading(lambda x: x.view("i8") if x.dtype.kind == "M" else x, **all_types()), READS, "dtype int64",
    ),
    "reads text cut": (
        reading(lambda x: x.astype("U2").astype(x.dtype) if x.dtype.kind == "U" else x, **all_types()),
        READS, "str",
    ),
    "reads zeros the second time": (reading(once_seen(np.zeros_like)), READS),
    "reads zeros from the hundredth call on": (reading(from_call(100, np.zeros_like)), READS),
    "read-only copies of cubes": (
        reading(lambda x: read_only(x.copy(), lambda x: x.ndim == 3), to_numpy_shares=False), "read-only array",
    ),
    "writable views of what never changes, if strided": (
        immutable(to_numpy=lambda self, x: x.values if is_neither(x.values) else read_only(x.values),
                  from_numpy=lambda self, x, device=None: Array(np.array(x, order="K") if not is_neither(x) else
                                                                np.concatenate([x, x], -1)[..., : x.shape[-1]],
                                                                device or "cpu")),
        "the source, which is constant, must not change", "made by from_numpy()",
    ),
    "writable views of what never changes, if large": (
        immutable(to_numpy=lambda self, x: x.values if large(x.values) else read_only(x.values)), LARGE,
    ),
    # from_numpy
    "locks Fortran order": (making(lock), MAKES, "its argument was changed"),
    "zeroes Fortran order": (
        making(lambda x: (lambda y: (x.fill(0), y)[1])(x.copy()) if is_fortran(x) else x.copy()),
        MAKES, "its argument was changed",
    ),
    # direct converters
    "converts other bytes as they are": (
        Correct(), direct("numpy toy", raw, takes=is_number), CONVERTS, "big-endian",
    ),
    "converts negative strides as positive ones": (
        Correct(), direct("numpy toy", forwards, takes=lambda x: x.dtype.isnative and is_number(x)),
        CONVERTS, "reversed",
    ),
    "is wrong when bound": (
        Correct(),
        direct("numpy toy", bind=lambda self, o: lambda x: Array(scrambled(x)) if is_ordinary(x) else NotImplemented),
        "bind() of",
    ),
    "is wrong when written into code, for Fortran order": (
        Correct(),
        direct("numpy toy", inline=written("{make}({x})", make=lambda x: Array(if_(is_fortran, scrambled)(x)))),
        "inline() of", "Fortran",
    ),
    "is another library's when written into code": (
        Correct(), direct("toy numpy", inline=written("{x}")), "inline() of", "an array of toy instead of numpy",
    ),
    "converts what does not fit": (
        backend(dtypes=lambda self: {"float32"}), direct("numpy toy"), CONVERTS, "returned an array instead of raising an error",
    ),
    "is wrong for many": (*made_together(misordered), "bind_many() of", "instead"),
    "is of one dtype for many": (*made_together(promoted), "bind_many() of", "dtype"),
    "is wrong for many that it has seen": (*made_together(seen_before), "bind_many() of", "instead"),
    "shares what never changes": (CorrectImmutable(), direct("toy numpy"), "() of <Converter toy -> numpy>", MUST_NOT),
    "shares what is large with what never changes": (
        CorrectImmutable(), direct("numpy toy", if_(large, lambda x: x, np.copy)), LARGE, MUST_NOT,
    ),
    # many
    "reads many in another order": (read_together(misordered), "to_numpy_many()"),
    "reads many of one dtype": (read_together(promoted), "to_numpy_many()", "dtype"),
    "reads many that it has seen": (read_together(seen_before), "to_numpy_many()"),
    "reads none of many": (read_together(lambda xs: xs or None), "to_numpy_many()"),
    "computes many in another order": (
        backend(CorrectLazy, compute=lambda self, xs: [x.values.copy() for x in misordered(xs)]),
        "compute(), for", "instead of",
    ),
    "computes cubes in place": (
        backend(CorrectLazy, compute=lambda self, xs: [x.values if x.values.ndim == 3 else x.values.copy() for x in xs]),
        "to_numpy() by convert(", "when the result is written to",
    ),
    # the rest
    "the address of the whole": (AddressOfTheWhole(), "address(), for"),
    "reads arrays as they lie on another device": (
        backend(
            from_numpy_shares=None,
            from_numpy=lambda self, x, device=None: Array(scrambled(x) if device == "toy:1" else x, device or "cpu"),
        ),
        "from_numpy(x, 'toy:1')",
    ),
}  # fmt: skip
"""The parts of each wrong plugin, the backend first, and words of the first message."""
