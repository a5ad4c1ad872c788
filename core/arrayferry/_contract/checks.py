"""Checks of the results of methods and of the values of arrays, with messages for the author of a plugin."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import pytest

from arrayferry._dtypes import STANDARD_DTYPES, dtype_name
from arrayferry._errors import describe_error
from arrayferry._plugin.blocks import Blocks, Reader

from .classes import describe_value


class Duty(NamedTuple):
    """What a method must return.

    Attributes:
        fix: the sentence that says so to the author.
        kind: the type of the result, several types, or a function that accepts it. Values are compared elsewhere.
    """

    fix: str
    kind: Any = object

    def is_done(self, result: Any) -> bool:
        """Return whether a result is of the right kind."""
        if isinstance(self.kind, (type, tuple)):
            return isinstance(result, self.kind)
        return bool(self.kind(result))


def _are_names(names: Any) -> bool:
    listed = isinstance(names, Collection) and not isinstance(names, str) and bool(names)
    return listed and all(isinstance(name, str) for name in names)


DUTIES = {
    "to_numpy": Duty(
        "Return from to_numpy(x) a numpy.ndarray with the values, the shape and the dtype of x.",
        lambda x: type(x) is np.ndarray,
    ),
    "from_numpy": Duty(
        "Return from from_numpy(x) an array of the library with the values, the shape and the dtype of x."
    ),
    "copy": Duty("Return from copy(x) an array of equal values in memory of its own."),
    "to_numpy_many": Duty(
        "Return from to_numpy_many(xs) what to_numpy(x) returns for each of xs, in the same order.",
        Sequence,
    ),
    "is_traced": Duty(
        "Return False from is_traced(x), unless x has no values yet, as inside a compiled function.",
        lambda answer: not answer,
    ),
    "is_sparse": Duty("Return True or False from is_sparse(x).", bool),
    "to_dense": Duty(
        "Return from to_dense(x) all values of x, as an array that is not sparse or as a numpy.ndarray."
    ),
    "to_dlpack": Duty(
        "Return from to_dlpack(x) an object with __dlpack__ and __dlpack_device__, or take 'cpu' out of dlpack_devices.",
        lambda x: hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"),
    ),
    "from_dlpack": Duty(
        "Return from from_dlpack(x) an array of the library that shares the memory of x, or take 'cpu' out of "
        "dlpack_devices."
    ),
    "address": Duty(
        "Return from address(x) the address of the first element as a whole number, or None.",
        (int, NoneType),
    ),
    "dtypes": Duty(
        "Return from dtypes() a set of names as numpy.dtype(x).name spells them, such as {'float32'}, or None if that is all "
        "of NumPy's.",
        lambda names: names is None or _are_names(names),
    ),
    "dtype_of": Duty(
        "Return from dtype_of(x) the name of the dtype of its numbers, spelled as in dtypes()."
    ),
    "dtype_hint": Duty("Return from dtype_hint(dtype) a sentence, or an empty text.", str),
    "devices": Duty(
        'Return from devices() names such as ("cpu", "cuda:0"), the default first.',
        _are_names,
    ),
    "default_device": Duty("Return from default_device() the device of new arrays."),
    "device_of": Duty("Return from device_of(x) the name of its device, spelled as in devices()."),
    "place_of": Duty(
        "Return from place_of(x) what puts another array where x is, such as the name of its device."
    ),
    "is_on": Duty(
        "Return from is_on(x, device) whether x is on that device.", lambda answer: answer is True
    ),
    "use_device": Duty(
        "Return from use_device(device) a context manager, such as contextlib.nullcontext().",
        contextlib.AbstractContextManager,
    ),
    "fence": Duty(
        "Return from fence(x) a function without arguments that returns True or False, or None.",
        (Callable, NoneType),
    ),
    "is_out_of_memory": Duty(
        "Return from is_out_of_memory(error) whether memory ran out, without raising.",
        lambda answer: answer is False,
    ),
    "random": Duty("Return from random(seed, device) an arrayferry.Random that draws there."),
    "compute": Duty(
        "Return from compute(xs) a list with the values of each of xs, in the same order, in memory that nothing else uses.",
        Sequence,
    ),
    "blocks": Duty(
        "Return from blocks(xs, axis, block=None, client=None) an arrayferry.Blocks, such as Slices(xs, axis, lengths).",
        (Blocks, NoneType),
    ),
    "read": Duty(
        "Return from read(array, block) of what blocks() returns the values of that block, which begins along the axis at "
        "the sum of the lengths before it, in memory that nothing else writes to."
    ),
    "open": Duty(
        "Return from open(steps) of what blocks() returns a Reader, whose read(step) returns a list with one block for each "
        "pair of steps[step], in the same order.",
        Reader,
    ),
}
"""What each method must return."""
FIX_DEVICE = (
    "Put the array on the device in from_numpy(x, device), return from to_device(x, device) an array on that device, and "
    "return its name from device_of(x), spelled as in devices()."
)
TAKES_DEVICE = "from_numpy() takes no device. Give from_numpy an argument device=None."
STRIDES = "Read its memory by its shape and strides, as numpy.asarray does."


_RESULTS = {
    "to_numpy": "a numpy.ndarray",
    "from_numpy": "an array of the library",
    "copy": "an array in memory of its own",
}


def remedy(method: str, found: str, actual: Any, values: Any, *, either: bool = False) -> str:
    """Return what to change in a method that returned something else than the values of its argument.

    Args:
        method: the method.
        found: the difference, or "raised" if there was no result.
        actual: the values of the result.
        values: the right values.
        either: whether `to_numpy` and `from_numpy` were called, and either may be wrong.
    """
    if method not in _RESULTS:
        return DUTIES[method].fix
    dtype, start = values.dtype.name, f"Return from {method}(x) {_RESULTS[method]}"
    if either:
        start = "Either to_numpy() or from_numpy() is wrong. Return from both an array"
    leave_out = ""
    if method != "copy" and dtype != "float32":  # which each library has
        leave_out = f", or leave {dtype!r} out of dtypes(): return arrayferry.STANDARD_DTYPES - {{{dtype!r}}}"
    if found == "raised":
        return f"Make {method}(x) work for such an array{leave_out}."
    if found.startswith("dtype "):
        return f"{start} with the dtype of x{leave_out}."
    if found.startswith("shape "):
        also = (
            ""
            if values.size and values.ndim
            else f", also if it {'is empty' if values.ndim else 'has no dimensions'}"
        )
        return f"{start} with the shape of x{also}."
    fix = f"{start} with the values of x."
    if values.dtype.kind in "fc" and not np.array_equal(actual, values, equal_nan=True):
        finite = np.isfinite(actual) & np.isfinite(values)
        with np.errstate(all="ignore"):
            if np.allclose(actual[finite], values[finite], 1e-2, 1e-4):
                return f"{fix} The numbers were rounded: do not compute in another dtype."
    if values.size > 1 and np.array_equal(np.sort(np.ravel(actual)), np.sort(np.ravel(values))):
        return f"{fix} They are all there, but in another order."
    return fix


def ask(
    function: Any,
    *args: Any,
    call: str,
    duty: Duty,
    case: str = "",
    raised: str = "",
    **options: Any,
) -> Any:
    """Call a function of a plugin and return its result. Assert that it is of the right kind.

    `raised` is the remedy if it raises an error, if that is another one.
    """
    what = f"{call}, {case}," if case else call
    try:
        result = function(*args, **options)
    except Exception as error:
        skip_if_lacking(error)
        fix = "" if isinstance(error, NotImplementedError) and str(error) else raised or duty.fix
        text = describe_error(error).rstrip(" .")
        raise AssertionError(f"{what} raised {text}. {fix}".rstrip()) from error
    plain = isinstance(result, (bool, str, tuple, set, frozenset))
    shown = f"{result!r:.80}" if plain else describe_value(result)
    assert duty.is_done(result), f"{what} returned {shown}. {duty.fix}"
    return result


_LACKS = re.compile(
    r"""
    not\ compiled\ with\ (CUDA|ROCm|MPS|XPU|HIP)
    | no\ (\S+\ )?(CUDA|GPU|TPU|HIP|ROCm|XPU|accelerator)\S*(\ \S+)?\ (device|GPU|driver|is|are|was|were|found)
    | (CUDA|HIP|NVIDIA|GPU)\ driver
    | cudaError | CUDA_ERROR | hipError | libcuda
    | (no|without|missing|needs?|requires?|find|invalid|working)\ .{0,40}\bcompiler
    | compiler\b.{0,40}\b(not|missing|unavailable)
    | InvalidCxxCompiler
    | (No\ such\ file|cannot\ find|not\ found).{0,40}\b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w)
    | \b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w).{0,20}(not\ found|No\ such\ file)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def lacking(error: BaseException | None) -> str:
    """Return the text of the error or cause for which a device or a compiler is missing, "" for other errors."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = describe_error(error)
        # errors of the kit itself are not about the library
        own = isinstance(error, AssertionError) or not isinstance(error, Exception)
        if not own and _LACKS.search(text):
            return " ".join(text.split())[:200].rstrip(" .")
        error = error.__cause__ or error.__context__
    return ""


@contextlib.contextmanager
def noting(missing: list[str], name: str) -> Iterator[None]:
    """Add a device or compiler that is missing here to a list, instead of failing."""
    try:
        yield
    except (Exception, pytest.skip.Exception) as error:
        reason = lacking(error)
        if not reason:
            raise
        missing.append(f"{name} ({reason})")


def skip_if_lacking(error: BaseException) -> None:
    """Skip the test if the library lacks a device or a compiler here, which is not the fault of its plugin."""
    reason = lacking(error)
    if reason:
        pytest.skip(f"not tested: the library lacks something here ({reason})")


Values = np.ndarray[Any, Any]
_KEEP = (
    "Change from_numpy() so that it leaves its argument as it is: call x.copy() or x.view() first."
)


def same(actual: Any, expected: Any, what: str, fix: str) -> None:
    """Assert that two NumPy arrays have the same shape, dtype and values, bit by bit except for NaN.

    Args:
        actual: the array that a plugin returned.
        expected: the right array.
        what: a description of the call.
        fix: the remedy for the author of the plugin.
    """
    found = difference(actual, expected)
    assert not found, f"{what}: {found}. {fix}"


@contextlib.contextmanager
def kept(memory: Values, what: str) -> Iterator[None]:
    """Assert that a NumPy array is the same before and after."""
    values, before = memory.copy(), (memory.shape, memory.strides, memory.flags.writeable)
    yield
    same(memory, values, what, _KEEP)
    after = (memory.shape, memory.strides, memory.flags.writeable)
    assert after == before, f"{what}, became read-only, or its shape or strides changed. {_KEEP}"


def difference(actual: Any, expected: Any) -> str:
    """Describe how two NumPy arrays differ, "" if they do not."""
    for name in ("shape", "dtype"):
        ours, theirs = getattr(actual, name), getattr(expected, name)
        if ours != theirs:
            return f"{name} {ours} instead of {theirs}"
    differing = _words(actual) != _words(expected)
    if not differing.any():
        return ""
    wrong = differing.any(axis=1)
    if actual.dtype.kind in "fc":  # NaNs may differ in their bits
        wrong &= ~np.ravel(np.isnan(actual) & np.isnan(expected))
    places = np.flatnonzero(wrong)
    return _first_difference(actual, expected, places) if places.size else ""


def stated_difference(array: Any, values: Values) -> str:
    """Describe how the dtype or the shape that an array states is another one, "" if it is not, or not stated."""
    dtype, shape = dtype_name(getattr(array, "dtype", None)), getattr(array, "shape", None)
    if dtype in STANDARD_DTYPES and dtype != values.dtype.name:
        return f"dtype {dtype} instead of {values.dtype.name}"
    if isinstance(shape, tuple) and shape != values.shape:
        return f"shape {shape} instead of {values.shape}"
    return ""


def _words(x: Any) -> Any:
    """Return the bits of each element, as one or more whole numbers."""
    size = next(size for size in (8, 4, 2, 1) if x.itemsize % size == 0)
    return np.ascontiguousarray(x).reshape(x.size, 1).view(f"u{size}")


def _first_difference(ours: Any, theirs: Any, places: Any) -> str:
    index = ", ".join(str(int(i)) for i in np.unravel_index(places[0], ours.shape))
    where = f"at [{index}]" if index else "in its only element"
    count = f" ({len(places)} of {ours.size} elements differ)" if ours.size > 1 else ""
    return f"{ours.ravel()[places[0]]} instead of {theirs.ravel()[places[0]]} {where}{count}"
