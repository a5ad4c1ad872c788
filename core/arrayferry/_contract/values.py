"""Tests of recognition, and of values, shapes and dtypes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from arrayferry._dtypes import dtype_info, dtype_named, unknown_dtypes
from arrayferry._errors import describe_error

from .arrays import ArrayTests
from .base import KEEP, OWED, STRIDES
from .classes import any_exists, array_classes
from .same import describe_type, describe_value, same
from .samples import laid_out, sample, special

__all__ = ["ValueTests"]

_SPECIAL = "The sign of zero, infinities, NaN and the ends of the range are part of the values."
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


class ValueTests(ArrayTests):
    """The tests of recognition, values and dtypes."""

    # Detection.

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        types = self._backend.array_types
        if not types:  # of a library without a plugin
            return
        module = importlib.import_module(self._backend.package)
        guesses = (*array_classes(module), f"{module.__name__}.Array")
        likely = tuple(path for path in guesses[: max(len(guesses) - 1, 1)] if path not in types)
        example = (
            f", such as {likely}"
            if likely
            else ", as type(x) shows it for an array x of the library"
        )
        assert any_exists(types), (
            f"array_types is {types}, and there is no such type in {module.__name__}. Set array_types to the dotted paths of the "
            f"array types of the library{example}"
        )

    def test_its_arrays_are_recognised(self) -> None:
        """An array of the library is recognised by its type."""
        self._recognised(self.make(sample(self._usual(), (2,))), "make() of the test")

    def test_arrays_are_not_traced(self) -> None:
        """An ordinary array is not traced."""
        array = self.make(sample(self._usual(), (2,)))
        assert not self._backend.is_traced(array), (
            "is_traced() is true for an ordinary array. Return False from is_traced(x), unless x has no values yet, "
            "as inside a compiled function"
        )

    def test_dtypes_are_known(self) -> None:
        """`dtypes` names dtypes as NumPy and ml_dtypes spell them."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        assert not isinstance(supported, str), (
            f"dtypes() returned the text {supported!r}. Return a set of names, such as {{'float32'}}"
        )
        unknown = unknown_dtypes([n for n in supported if isinstance(n, str)])
        unknown += [str(name) for name in supported if not isinstance(name, str)]
        assert not unknown, (
            f"dtypes() names {', '.join(unknown)}, which neither NumPy nor ml_dtypes has. Return names as "
            "numpy.dtype(x).name spells them, such as 'float32'"
        )
        assert supported, "dtypes() is empty. Return the names of the dtypes, such as {'float32'}"

    def test_hints_on_dtypes(self) -> None:
        """`dtype_hint` returns a text for each dtype."""
        for dtype in ("float64", "int64", "bfloat16"):
            hint = self._call("dtype_hint", dtype, what=f"for {dtype!r}")
            assert isinstance(hint, str), (
                f"dtype_hint({dtype!r}) returned {describe_value(hint)}. {OWED['dtype_hint']}"
            )

    def test_running_out_of_memory(self) -> None:
        """`is_out_of_memory` is false for other errors."""
        answer = self._call(
            "is_out_of_memory", ValueError("a wrong value"), what="for a ValueError"
        )
        assert answer is False, (
            f"is_out_of_memory() returned {answer!r} for a ValueError. {OWED['is_out_of_memory']}"
        )

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` names dtypes of the right kind."""
        for kind in ("bool", "int", "float", "complex"):
            name = self._backend.number_dtype(kind)
            dtype = dtype_named(name) if isinstance(name, str) else None
            is_right = dtype is not None and dtype_info(dtype).kind == kind
            assert is_right, (
                f"number_dtype({kind!r}) returned {name!r}. Return the name of the dtype that asarray() of the library "
                f"chooses for a Python {kind}, such as {np.asarray(_NUMBERS[kind]).dtype.name!r}"
            )

    def test_one_number(self) -> None:
        """`item()` of an array whose type is in `item_types` returns its number."""
        for dtype in (
            self._usual(),
            *(each for each in self._dtypes() if each.char in "?bhilqBHILQd"),
        ):
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
        for dtype in self._dtypes():
            for values, case in self._samples(dtype):
                array = self.make(values)
                for _ in range(2 if values.shape == (2, 3) else 1):
                    out = self._to_numpy(array, case)
                    same(out, values, f"to_numpy(), {case}", OWED["to_numpy"])
            for values, more in self._layouts(dtype):
                for array, case, fix in self._lying(values, more=more):
                    out = self._to_numpy(array, case)
                    self._same(out, array, values, f"to_numpy(), {case}", fix)

    def test_from_numpy(self) -> None:
        """`from_numpy` returns an array with the same values, shape and dtype, whatever the memory layout."""
        for dtype in self._dtypes(made=False):
            for values, case in self._samples(dtype):
                array = self._from_numpy(values.copy(), case)
                same(self.read(array), values, f"from_numpy(), {case}", OWED["from_numpy"])
            for values, more in self._layouts(dtype):
                for name, laid in laid_out(values, more=more):
                    case = f"for an array of dtype {dtype.name} and shape {values.shape} {name}"
                    fix = f"{OWED['from_numpy']} {STRIDES}"
                    same(
                        self.read(self._from_numpy(laid, case)),
                        values,
                        f"from_numpy(), {case}",
                        fix,
                    )
                    what = f"the argument of from_numpy(), {case}"
                    same(laid, values, what, KEEP)
                    assert laid.flags.writeable, f"{what}, became read-only. {KEEP}"

    def test_copy(self) -> None:
        """`copy` returns an array with the same values, shape and dtype, whatever the memory layout."""
        for dtype in self._dtypes():
            for values, case in self._samples(dtype):
                copied = self._call("copy", self.make(values.copy()), what=case)
                self._recognised(copied, "copy()")
                same(self.read(copied), values, f"copy(), {case}", OWED["copy"])
            for values, more in self._layouts(dtype):
                for array, case, _ in self._lying(values, more=more):
                    copied = self._call("copy", array, what=case)
                    self._same(self.read(copied), array, values, f"copy(), {case}", OWED["copy"])

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways, and by `copy`."""
        for dtype in self._dtypes():
            values = special(dtype)
            case = f"for special values of dtype {dtype.name}"
            out = self._to_numpy(self.make(values), case)
            same(out, values, f"to_numpy(), {case}", f"{OWED['to_numpy']} {_SPECIAL}")
            array = self._from_numpy(values.copy(), case)
            fix = f"{OWED['from_numpy']} {_SPECIAL}"
            same(self.read(array), values, f"from_numpy(), {case}", fix)
            copied = self._call("copy", self.make(values), what=case)
            same(self.read(copied), values, f"copy(), {case}", f"{OWED['copy']} {_SPECIAL}")
