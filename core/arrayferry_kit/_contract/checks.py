"""Functions that check the results of methods, whether arrays are equal, and whether types exist.

The messages of failures say what was expected, and what was returned instead.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from types import NoneType
from typing import Any

import numpy as np
import pytest

from arrayferry import STANDARD_DTYPES
from arrayferry._utilities.text import describe_value
from arrayferry.extending import describe_error, dtype_name, resolve_type
from arrayferry.typing import AnyArray, AnyTree

Values = np.ndarray[Any, Any]


def _are_names(names: Any) -> bool:
    is_collection = isinstance(names, Collection) and not isinstance(names, str) and bool(names)
    return is_collection and all(isinstance(name, str) for name in names)


DUTIES: dict[str, tuple[str, Any]] = {
    "to_numpy": ("a numpy.ndarray", lambda x: type(x) is np.ndarray),
    "is_traced": ("False, since the array has values", lambda answer: not answer),
    "is_sparse": ("True or False", bool),
    "dlpack.export": (
        "an object with __dlpack__ and __dlpack_device__",
        lambda x: hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"),
    ),
    "address": ("a whole number, or None", (int, NoneType)),
    "dtypes": (
        "a set of names such as {'float32'}, or None for all of NumPy's",
        lambda names: names is None or _are_names(names),
    ),
    "dtype_hint": ("a text", str),
    "devices.names": ('names such as ("cpu", "cuda:0")', _are_names),
    "devices.is_on": ("True", lambda answer: answer is True),
    "devices.use": ("a context manager", contextlib.AbstractContextManager),
    "devices.fence": ("a function, or None", (Callable, NoneType)),
    "devices.is_out_of_memory": ("False", lambda answer: answer is False),
}
"""What each method must return: a text for messages, and types or a function that returns whether a result is right.

The table does not describe the values of arrays, which `Runner.run` compares.
"""


def equal(actual: Any, expected: Any, what: str) -> None:
    """Assert that two values are equal."""
    assert actual == expected, f"{what}: {actual!r} instead of {expected!r}"


def ask(
    function: Any, *args: Any, what: str, duty: tuple[str, Any] | None = None, **options: Any
) -> Any:
    """Call a function of a plugin, and return the result. Assert that the result fits `duty`, a row of `DUTIES`."""
    try:
        result = function(*args, **options)
    except Exception as error:
        skip_if_lacking(error)
        raise AssertionError(f"{what}: raised {describe_error(error)}") from error
    check_kind(result, duty, what)
    return result


def check_kind(result: AnyTree, duty: tuple[str, Any] | None, what: str) -> None:
    """Assert that a result fits `duty`, a row of `DUTIES`. None for `duty` accepts any result."""
    expected_text, test = duty or ("", object)
    is_right = isinstance(result, test) if isinstance(test, (type, tuple)) else test(result)
    is_plain = isinstance(result, (bool, str, tuple, set, frozenset))
    actual_text = f"{result!r:.80}" if is_plain else describe_value(result)
    assert is_right, f"{what}: returned {actual_text} instead of {expected_text}"


_LACKS = re.compile(
    r"""
    MemoryError | not\ compiled\ with\ (CUDA|ROCm|MPS|XPU|HIP)
    | no\ (\S+\ )?(CUDA|GPU|TPU|HIP|ROCm|XPU|accelerator)\S*(\ \S+)?\ (device|GPU|driver|is|are|was|were|found)
    | (CUDA|HIP|NVIDIA|GPU)\ driver
    | cudaError | CUDA_ERROR | hipError | libcuda
    | (no|without|missing|needs?|requires?|find|invalid|working)\ .{0,40}\bcompiler
    | compiler\b.{0,40}\b(not|missing|unavailable)
    | InvalidCxxCompiler
    | (No\ such\ file|cannot\ find|not\ ?found).{0,40}\b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w)
    | \b(g\+\+|gcc|clang(\+\+)?|nvcc|ptxas|cl\.exe)(?!\w).{0,20}(not\ found|No\ such\ file)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def _lacking(error: BaseException | None) -> str:
    """Search an error and its causes for an error about missing memory, devices or compilers, and return its text.

    If there are several such errors, return the text of the original cause. If there is none, return "".
    """
    seen_ids: set[int] = set()
    reason = ""
    while error is not None and id(error) not in seen_ids:
        seen_ids.add(id(error))
        error_text = describe_error(error)
        # ignore the kit's own assertions: they may quote words such as "compiler" although nothing is missing
        is_own_error = isinstance(error, AssertionError) or not isinstance(error, Exception)
        if not is_own_error and _LACKS.search(error_text):
            reason = " ".join(error_text.split())[:200].rstrip(" .")
        error = error.__cause__ or error.__context__
    return reason


def skip_if_lacking(error: BaseException | None) -> None:
    """Skip the test if the error is about missing memory, devices or compilers. These are no faults of the plugin."""
    reason = _lacking(error)
    if reason:
        pytest.skip(f"not tested: the library lacks something here ({reason})")


def every(parts: Iterable[Callable[[], object]]) -> None:
    """Run all parts of a test. Then skip the test if memory, a device or a compiler was missing in one of them."""
    lack_error: BaseException | None = None
    for part in parts:
        try:
            part()
        except (Exception, pytest.skip.Exception) as error:
            if not _lacking(error):
                raise
            lack_error = lack_error or error
    skip_if_lacking(lack_error)


def same(actual: Any, expected: Any, what: str) -> None:
    """Assert that two NumPy arrays have the same shape, dtype and values. Compare all bits except those of NaNs."""
    mismatch = difference(actual, expected)
    assert not mismatch, f"{what}: {mismatch}"


def difference(actual: Any, expected: Any) -> str:
    """Return a description of how two NumPy arrays differ, or "" if they do not."""
    for attribute in ("shape", "dtype"):
        actual_value, expected_value = getattr(actual, attribute), getattr(expected, attribute)
        if actual_value != expected_value:
            return f"{attribute} {actual_value} instead of {expected_value}"
    wrong_mask = (_words(actual) != _words(expected)).any(axis=1)
    if wrong_mask.any() and actual.dtype.kind in "fc":  # NaNs may differ in their bits
        wrong_mask &= ~np.ravel(np.isnan(actual) & np.isnan(expected))
    if not wrong_mask.any():
        return ""
    flat_index = int(np.flatnonzero(wrong_mask)[0])
    index_text = ", ".join(str(int(i)) for i in np.unravel_index(flat_index, actual.shape))
    actual_value, expected_value = actual.ravel()[flat_index], expected.ravel()[flat_index]
    count_text = f"{wrong_mask.sum()} of {wrong_mask.size}"
    return f"{actual_value} instead of {expected_value} at [{index_text}] ({count_text} elements differ)"


def stated_difference(array: AnyArray, values: Values) -> str:
    """Return a description of how the `dtype` or `shape` of an array differs from that of `values`.

    Return "" if there is no difference, or the array has no attribute `dtype` or `shape` to compare.
    """
    dtype, shape = dtype_name(getattr(array, "dtype", None)), getattr(array, "shape", None)
    if dtype in STANDARD_DTYPES and dtype != values.dtype.name:
        return f"dtype {dtype} instead of {values.dtype.name}"
    if isinstance(shape, tuple) and shape != values.shape:
        return f"shape {shape} instead of {values.shape}"
    return ""


def _words(x: AnyArray) -> Any:
    """Return the bits of each element as a row of unsigned integers."""
    word_size = next(word_size for word_size in (8, 4, 2, 1) if x.itemsize % word_size == 0)
    return np.ascontiguousarray(x).reshape(x.size, 1).view(f"u{word_size}")


def missing_types(paths: Sequence[Any]) -> list[Any]:
    """Import the module of each dotted path. Return the paths in installed packages that name no type."""
    for path in paths:
        with contextlib.suppress(Exception):
            # this fails if there is no such module, or if the path names a class within a class
            importlib.import_module(str(path).rpartition(".")[0])
    missing_paths = [path for path in paths if resolve_type(path) is None]
    return [path for path in missing_paths if str(path).partition(".")[0] in sys.modules]
