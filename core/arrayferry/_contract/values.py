"""Tests of recognition, of values, shapes and dtypes, and of conversions to and from NumPy."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import numpy as np

from arrayferry._dtypes import dtype_info, dtype_named, unknown_dtypes
from arrayferry._errors import UnsupportedDtypeError, describe_error

from .arrays import VALUE_METHODS, ArrayTests
from .base import Given, convert, refused
from .checks import STRIDES, Values, kept, same
from .classes import any_exists, array_classes, describe_type
from .samples import array_of, in_layouts, layouts, special

_SPECIAL = "The sign of zero, infinities, NaN and the ends of the range are part of the values."
_NUMBERS = {"bool": "bool", "int": "int64", "float": "float64", "complex": "complex128"}
_KEEP_DTYPE = "Change from_numpy() to keep the dtype of its argument, which dtypes() names"
_NAME_DTYPES = "Return from dtypes() the names of the dtypes that arrays can have now, or None if that is all of NumPy's"


class ValueTests(ArrayTests):
    """The tests of recognition, values and dtypes."""

    # Detection.

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        self._warn_of_names()
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
        self._recognised(self._ordinary().x, "make() of the test")

    def test_arrays_are_not_traced(self) -> None:
        """An ordinary array is not traced."""
        self._ask("is_traced", self._ordinary().x, case="for an ordinary array")

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
            assert (dtype is not None and dtype_info(dtype).kind) == kind, (
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
            for given in self._samples(method, dtype):
                self._gives(method, given)
            cases = _numpy_in_layouts if method == "from_numpy" else self._in_layouts
            for values, more in self._layouts(dtype):
                for given in cases(values, more=more):
                    self._gives(method, given)

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways, and by `copy`."""
        for dtype in self._dtypes():
            case = f"for special values of dtype {dtype.name}"
            for method in VALUE_METHODS:
                self._gives(method, self._given(method, special(dtype), case, _SPECIAL))


def _numpy_in_layouts(values: Values, *, more: bool) -> Iterator[Given]:
    """Yield NumPy arrays of the same values, in different memory layouts."""
    for name, laid in in_layouts(values, more=more):
        yield Given(laid, values, array_of(values, name), STRIDES)


class ConversionTests(ArrayTests):
    """The tests of conversions to and from NumPy."""

    def test_memory_layouts(self) -> None:
        """A NumPy array keeps its values, whatever its memory layout."""
        for name, values in layouts(self._usual()):
            expected = np.array(values)
            if self._backend.name != "numpy":
                expected = expected.astype(expected.dtype.newbyteorder("="))
            what = f"from_numpy(), for a NumPy array that was {name} before it was made ready"
            fix = f"{self._fix('from_numpy')} {STRIDES}"
            same(self.read(convert(values, self._backend)), expected, what, fix)

    def test_sources_are_not_changed(self) -> None:
        """No conversion changes its source, in the library or in NumPy."""
        given = self._ordinary()
        for method in ("to_numpy", "copy"):
            self._gives(method, given)
            fix = f"Change {method}() so that it leaves its argument as it is."
            what = f"the array, after {method}() was called with it"
            same(self.read(given.x), given.values, what, fix)
        convert(given.x, "numpy", copy=True)
        fix = "Change to_numpy() and copy() so that they leave their argument as it is."
        same(self.read(given.x), given.values, "the array, after it was converted", fix)
        given = self._ordinary("from_numpy")
        self._gives("from_numpy", given)
        with kept(given.x, "the NumPy array, after it was converted"):
            convert(given.x, self._backend, copy=True)

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        other = "numpy" if self._backend.name != "numpy" else "torch"
        for array, word in self.unportable():
            what = f"a {describe_type(array)} with more than values ({word})"
            fix = "Raise arrayferry.ConversionError(reason, remedy=...) from to_numpy(), since something was lost"
            error = refused({"x": array}, other, what, fix, sparse="raise")
            assert word in str(error), (
                f"the error for {what} does not mention it. Change the reason of the ConversionError that to_numpy() raises: "
                f"{error}"
            )
            assert error.remedy, (
                f"the error for {what} has no remedy. Pass remedy= to the ConversionError that to_numpy() raises: what to call "
                f"first: {error}"
            )
            assert "['x']" in str(error), f"the error for {what} does not name the place: {error}"

    def test_sparse_arrays(self) -> None:
        """`is_sparse` is true or false, and `to_dense` returns the values of sparse arrays."""
        given = self._ordinary()
        if self._ask("is_sparse", given.x, case=given.case):
            dense = self._ask("to_dense", given.x, case=given.case)
            if not isinstance(dense, np.ndarray):
                self._recognised(dense, "to_dense()")
                still = self._backend.is_sparse(dense)
                assert not still, f"to_dense() returned a sparse array. {self._fix('to_dense')}"
                dense = self._ask("to_numpy", dense, case="for what to_dense() returned")
            same(dense, given.values, "to_dense()", self._fix("to_dense"))

    # Dtypes.

    def test_missing_dtypes_follow_the_narrowing_rule(self) -> None:
        """A missing dtype becomes the widest of its kind, and numbers are never lost silently."""
        supported = self._ask("dtypes")
        if supported is None:
            return
        for name, number in (("int64", 2**40), ("uint64", 2**60), ("float64", 1e300)):
            values, what = np.array([number], dtype=name), f"{number:g} of dtype {name}"
            if name in supported:
                fix = f"Leave {name!r} out of dtypes(), or keep it in from_numpy()."
                held = self.read(convert(values, self._backend))
                same(held, values, f"from_numpy(), for {what}", fix)
                continue
            refused(values, self._backend, what, _NAME_DTYPES)
            with contextlib.suppress(UnsupportedDtypeError):
                small = self.read(convert(np.array([3], dtype=name), self._backend))
                is_kept = small.dtype.kind == values.dtype.kind and small.tolist() == [3]
                assert is_kept, (
                    f"3 of dtype {name} became {small} of dtype {small.dtype}. {_KEEP_DTYPE}"
                )

    def test_text_is_refused_or_kept(self) -> None:
        """Text that the backend does not support is refused, or kept on request."""
        text = np.array(["a", "b"])
        if self._ask("dtypes") is None:
            case = "for text, since dtypes() is None, which means all of NumPy's"
            self._call("from_numpy", Given(text, text, case))
            return
        refused(text, self._backend, "text", _NAME_DTYPES)
        unchanged = convert(text, self._backend, unsupported="keep")
        assert unchanged is text, (
            f'unsupported="keep" made a {describe_type(unchanged)} of text. {_NAME_DTYPES}'
        )
