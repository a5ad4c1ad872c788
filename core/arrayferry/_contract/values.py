"""Tests of what is recognised, and of values, shapes and dtypes."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import numpy as np

from arrayferry import _api
from arrayferry._errors import ConversionError, UnsupportedDtypeError, describe_error
from arrayferry._route.dtypes import dtype_named, kind_of, unknown_dtypes

from .base import OWED, BackendTests, convert
from .classes import any_exists, array_classes
from .same import describe_type, describe_value, same
from .samples import SHAPES, layouts, sample, special

__all__ = ["ValueTests"]

_SPECIAL = "The sign of zero, infinities, NaN and the ends of the range are part of the values."
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


class ValueTests(BackendTests):
    """The tests of recognition, values and dtypes."""

    # Detection.

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        types = self._backend.array_types
        if not types:  # of a library without a plugin
            return
        module = importlib.import_module(self._backend.package)
        likely = tuple(array_classes(module)) or (f"{module.__name__}.Array",)
        assert any_exists(types), (
            f"array_types is {types}, and there is no such type in {module.__name__}. Set array_types to the dotted paths of the "
            f"array types of the library, such as {likely}"
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
        found = self._call("is_out_of_memory", ValueError("a wrong value"), what="for a ValueError")
        assert found is False, (
            f"is_out_of_memory() returned {found!r} for a ValueError. {OWED['is_out_of_memory']}"
        )

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` names dtypes of the right kind."""
        for kind in ("bool", "int", "float", "complex"):
            name = self._backend.number_dtype(kind)
            found = dtype_named(name) if isinstance(name, str) else None
            is_right = found is not None and kind_of(found) == kind
            assert is_right, (
                f"number_dtype({kind!r}) returned {name!r}. Return the name of the dtype that asarray() of the library "
                f"chooses for a Python {kind}, such as {np.asarray(_NUMBERS[kind]).dtype.name!r}"
            )

    def test_one_number(self) -> None:
        """`item()` of an array of `item_types` returns its number."""
        array = self.make(np.array([[3]], self._usual()))
        expected = repr(np.array(3, self._usual()).item())
        if not self._backend.has_item(type(array)):
            return
        try:
            found = repr(array.item())
        except Exception as error:
            found = describe_error(error)
        assert found == expected, (
            f"item() of a {describe_type(array)} of {expected} gave {found}. Take its type out of item_types"
        )

    # Values.

    def test_to_numpy(self) -> None:
        """`to_numpy` returns the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = sample(dtype, shape)
                case = f"for an array of dtype {dtype.name} and shape {shape}"
                out = self._to_numpy(self.make(values), case)
                same(out, values, f"to_numpy(), {case}", OWED["to_numpy"])

    def test_from_numpy(self) -> None:
        """`from_numpy` returns an array with the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = sample(dtype, shape)
                case = f"for an array of dtype {dtype.name} and shape {shape}"
                array = self._from_numpy(values.copy(), case)
                same(self.read(array), values, f"from_numpy(), {case}", OWED["from_numpy"])

    def test_copy(self) -> None:
        """`copy` returns an array with the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = sample(dtype, shape)
                case = f"for an array of dtype {dtype.name} and shape {shape}"
                copied = self._call("copy", self.make(values.copy()), what=case)
                self._recognised(copied, "copy()")
                same(self.read(copied), values, f"copy(), {case}", OWED["copy"])

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways."""
        for dtype in self._dtypes():
            values = special(dtype)
            case = f"for special values of dtype {dtype.name}"
            out = self._to_numpy(self.make(values), case)
            same(out, values, f"to_numpy(), {case}", f"{OWED['to_numpy']} {_SPECIAL}")
            array = self._from_numpy(values.copy(), case)
            same(
                self.read(array),
                values,
                f"from_numpy(), {case}",
                f"{OWED['from_numpy']} {_SPECIAL}",
            )

    def test_memory_layouts(self) -> None:
        """A NumPy array keeps its values, whatever its memory layout."""
        for name, values in layouts(self._usual()):
            expected = np.array(values)
            if self._backend.name != "numpy":
                expected = expected.astype(expected.dtype.newbyteorder("="))
            same(
                self.read(convert(values, self._backend)),
                expected,
                f"from_numpy(), for a NumPy array that was {name} before it was made ready",
                "Read the memory of the argument of from_numpy() by its shape and strides, as numpy.asarray does.",
            )

    def test_sources_are_not_changed(self) -> None:
        """No conversion changes its source, in the library or in NumPy."""
        values = sample(self._usual(), (2, 3))
        array = self.make(values)
        for method in ("to_numpy", "copy"):
            self._call(method, array, what="for an ordinary array")
            same(
                self.read(array),
                values,
                f"the array, after {method}() was called with it",
                f"Change {method}() so that it leaves its argument as it is.",
            )
        convert(array, "numpy", copy=True)
        same(
            self.read(array),
            values,
            "the array, after it was converted",
            "Change to_numpy() and copy() so that they leave their argument as it is.",
        )
        memory = values.copy()
        taken = memory.view()
        fix = "Change from_numpy() so that it leaves its argument as it is: call x.copy() or x.view() first"
        self._from_numpy(taken, "for an ordinary array")
        convert(taken, self._backend, copy=True)
        same(memory, values, "the NumPy array, after it was converted", f"{fix}.")
        assert taken.shape == values.shape, f"the shape of the NumPy array changed. {fix}"
        assert taken.strides == values.strides, f"the strides of the NumPy array changed. {fix}"
        assert taken.flags.writeable, f"the NumPy array became read-only. {fix}"

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        for array, word in self.unportable():
            other = "numpy" if self._backend.name != "numpy" else "torch"
            what = f"a {describe_type(array)} with more than values ({word})"
            try:
                _api.convert({"x": array}, other, sparse="raise")
            except ConversionError as error:
                text, remedy = str(error), error.remedy
            else:
                raise AssertionError(
                    f"{what} was converted, so something was lost. Raise arrayferry.ConversionError(reason, "
                    "remedy=...) from to_numpy()"
                )
            assert word in text, (
                f"the error for {what} does not mention it: {text}. Change the reason of the ConversionError that "
                "to_numpy() raises"
            )
            assert remedy, (
                f"the error for {what} has no remedy: {text}. Pass remedy= to the ConversionError that to_numpy() "
                "raises: what to call first"
            )
            assert "['x']" in text, f"the error for {what} does not name the place: {text}"

    def test_sparse_arrays(self) -> None:
        """`is_sparse` is true or false, and `to_dense` returns the values of sparse arrays."""
        values = sample(self._usual(), (2, 3))
        array = self.make(values)
        found = self._call("is_sparse", array, what="for an ordinary array")
        assert found is True or found is False, (
            f"is_sparse() returned {found!r}. Return True or False from is_sparse(x)"
        )
        if found:
            dense = self._call("to_dense", array, what="for an ordinary array")
            if not isinstance(dense, np.ndarray):
                self._recognised(dense, "to_dense()")
                still = self._backend.is_sparse(dense)
                assert not still, f"to_dense() returned a sparse array. {OWED['to_dense']}"
                dense = self._to_numpy(dense, "for what to_dense() returned")
            same(dense, values, "to_dense()", OWED["to_dense"])

    # Dtypes.

    def test_missing_dtypes_follow_the_narrowing_rule(self) -> None:
        """A missing dtype becomes the widest of its kind, and numbers are never lost silently."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        for name, number in (("int64", 2**40), ("uint64", 2**60), ("float64", 1e300)):
            values = np.array([number], dtype=name)
            if name in supported:
                same(
                    self.read(convert(values, self._backend)),
                    values,
                    f"from_numpy(), for {number:g} of dtype {name}",
                    f"Leave {name!r} out of dtypes(), or keep it in from_numpy().",
                )
                continue
            try:
                found = self.read(convert(values, self._backend))
            except ConversionError:
                pass
            else:
                raise AssertionError(
                    f"{number:g} of dtype {name} became {found} of dtype {found.dtype}. Return from dtypes() only what "
                    "the arrays of the library can have now"
                )
            with contextlib.suppress(UnsupportedDtypeError):
                small = np.array([3], dtype=name)
                found = self.read(convert(small, self._backend))
                fix = "Change from_numpy() to keep the dtype of its argument, which dtypes() names"
                assert found.dtype.kind == small.dtype.kind, f"{name} became {found.dtype}. {fix}"
                assert found.tolist() == [3], f"3 of dtype {name} became {found}. {fix}"

    def test_text_is_refused_or_kept(self) -> None:
        """Text that the backend does not support is refused, or kept on request."""
        text = np.array(["a", "b"])
        if self._backend.dtypes() is None:
            self._from_numpy(text, "for text, since dtypes() is None, which means all of NumPy's")
            return
        fix = "Return from dtypes() the names of the dtypes that arrays can have, or None if that is all of NumPy's"
        try:
            found = convert(text, self._backend)
        except UnsupportedDtypeError:
            pass
        else:
            raise AssertionError(f"text became a {describe_type(found)}. {fix}")
        kept = convert(text, self._backend, unsupported="keep")
        assert kept is text, f'unsupported="keep" made a {describe_type(kept)} of text. {fix}'
