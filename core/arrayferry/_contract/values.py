"""Tests of recognition, and of values, shapes and dtypes."""

from __future__ import annotations

import importlib

import numpy as np

from arrayferry._errors import describe_error
from arrayferry._route.dtypes import dtype_kind, dtype_named, unknown_dtypes

from .arrays import VALUE_METHODS, ArrayTests
from .classes import any_exists, array_classes, describe_type
from .duties import STRIDES
from .samples import laid_out, special

__all__ = ["ValueTests"]

_SPECIAL = "The sign of zero, infinities, NaN and the ends of the range are part of the values."
_NUMBERS = {"bool": "bool", "int": "int64", "float": "float64", "complex": "complex128"}


class ValueTests(ArrayTests):
    """The tests of recognition, values and dtypes."""

    # Detection.

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        types = self._backend.array_types
        if not types:  # of a library without a plugin
            return
        module = importlib.import_module(self._backend.package)
        guesses = array_classes(module) or [f"{module.__name__}.Array"]
        likely = tuple(path for path in guesses if path not in types)
        example = (
            f"such as {likely}" if likely else "as type(x) shows it for an array x of the library"
        )
        assert any_exists(types), (
            f"array_types is {types}, and there is no such type in {module.__name__}. Set array_types to the dotted paths of the "
            f"array types of the library, {example}"
        )

    def test_its_arrays_are_recognised(self) -> None:
        """An array of the library is recognised by its type."""
        self._recognised(self._ordinary()[0], "make() of the test")

    def test_arrays_are_not_traced(self) -> None:
        """An ordinary array is not traced."""
        self._ask("is_traced", self._ordinary()[0], case="for an ordinary array")

    def test_dtypes_are_known(self) -> None:
        """`dtypes` names dtypes as NumPy and ml_dtypes spell them."""
        unknown = unknown_dtypes(self._ask("dtypes") or ())
        assert not unknown, (
            f"dtypes() names {', '.join(unknown)}, which neither NumPy nor ml_dtypes has. {self._fix('dtypes')}"
        )

    def test_hints_on_dtypes(self) -> None:
        """`dtype_hint` returns a text for each dtype."""
        for dtype in ("float64", "int64", "bfloat16"):
            self._ask("dtype_hint", dtype)

    def test_running_out_of_memory(self) -> None:
        """`is_out_of_memory` is false for other errors."""
        self._ask("is_out_of_memory", ValueError("a wrong value"), case="for a ValueError")

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` names dtypes of the right kind."""
        for kind, example in _NUMBERS.items():
            name = self._backend.number_dtype(kind)
            dtype = dtype_named(name) if isinstance(name, str) else None
            assert (dtype is not None and dtype_kind(dtype)) == kind, (
                f"number_dtype({kind!r}) returned {name!r}. Return the name of the dtype that asarray() of the library "
                f"chooses for a Python {kind}, such as {example!r}"
            )

    def test_one_number(self) -> None:
        """`item()` of an array whose type is in `item_types` returns its number."""
        dtypes = [dtype for dtype in self._dtypes() if dtype.char in "?bhilqBHILQd"]
        for dtype in (self._usual(), *dtypes):
            for number in {1, 0, *map(int, special(dtype)[: 0 if dtype.kind == "f" else 2])}:
                array = self.make(np.array([[number]], dtype))
                if not self._backend.has_item(type(array)):
                    return
                expected = repr(np.array(number, dtype).item())
                try:
                    actual = repr(array.item())
                except Exception as error:
                    actual = describe_error(error)
                assert actual == expected, (
                    f"item() of a {describe_type(array)} of {expected} and dtype {dtype.name} gave {actual}. Take its type "
                    "out of item_types"
                )

    # Values.

    def test_to_numpy(self) -> None:
        """`to_numpy` returns the same values, shape and dtype, each time, whatever the memory layout."""
        self._check_values("to_numpy")

    def test_from_numpy(self) -> None:
        """`from_numpy` returns an array with the same values, shape and dtype, whatever the memory layout."""
        self._check_values("from_numpy")

    def test_copy(self) -> None:
        """`copy` returns an array with the same values, shape and dtype, whatever the memory layout."""
        self._check_values("copy")

    def _check_values(self, method: str) -> None:
        for dtype in self._dtypes(made=method != "from_numpy"):
            for values, case in self._samples(dtype):
                x = self._argument(method, values)
                for _ in range(2 if values.shape == (2, 3) else 1):
                    self._gives(method, x, values, case)
            for values, more in self._layouts(dtype):
                if method == "from_numpy":
                    for name, laid in laid_out(values, more=more):
                        case = f"for an array of dtype {dtype.name} and shape {values.shape} {name}"
                        self._gives(method, laid, values, case, f"{self._fix(method)} {STRIDES}")
                else:
                    for x, case, fix in self._lying(values, more=more):
                        self._gives(method, x, values, case, fix if method == "to_numpy" else "")

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways, and by `copy`."""
        for dtype in self._dtypes():
            values = special(dtype)
            case = f"for special values of dtype {dtype.name}"
            for method in VALUE_METHODS:
                fix = f"{self._fix(method)} {_SPECIAL}"
                self._gives(method, self._argument(method, values), values, case, fix)
