"""Tests of conversions to and from NumPy, of arrays that hold more than values, and of missing dtypes."""

from __future__ import annotations

import contextlib

import numpy as np

from arrayferry import _api
from arrayferry._errors import ConversionError, UnsupportedDtypeError

from .arrays import ArrayTests
from .base import KEEP, OWED, STRIDES, convert
from .same import describe_type, same
from .samples import layouts, sample

__all__ = ["ConversionTests"]


class ConversionTests(ArrayTests):
    """The tests of conversions to and from NumPy."""

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
                f"{OWED['from_numpy']} {STRIDES}",
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
        fix = KEEP
        self._from_numpy(taken, "for an ordinary array")
        convert(taken, self._backend, copy=True)
        same(memory, values, "the NumPy array, after it was converted", fix)
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
        sparse = self._call("is_sparse", array, what="for an ordinary array")
        assert sparse is True or sparse is False, (
            f"is_sparse() returned {sparse!r}. Return True or False from is_sparse(x)"
        )
        if sparse:
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
                converted = self.read(convert(values, self._backend))
            except ConversionError:
                pass
            else:
                raise AssertionError(
                    f"{number:g} of dtype {name} became {converted} of dtype {converted.dtype}. Return from dtypes() only what "
                    "the arrays of the library can have now"
                )
            with contextlib.suppress(UnsupportedDtypeError):
                small = np.array([3], dtype=name)
                converted = self.read(convert(small, self._backend))
                fix = "Change from_numpy() to keep the dtype of its argument, which dtypes() names"
                assert converted.dtype.kind == small.dtype.kind, (
                    f"{name} became {converted.dtype}. {fix}"
                )
                assert converted.tolist() == [3], f"3 of dtype {name} became {converted}. {fix}"

    def test_text_is_refused_or_kept(self) -> None:
        """Text that the backend does not support is refused, or kept on request."""
        text = np.array(["a", "b"])
        if self._backend.dtypes() is None:
            self._from_numpy(text, "for text, since dtypes() is None, which means all of NumPy's")
            return
        fix = "Return from dtypes() the names of the dtypes that arrays can have, or None if that is all of NumPy's"
        try:
            converted = convert(text, self._backend)
        except UnsupportedDtypeError:
            pass
        else:
            raise AssertionError(f"text became a {describe_type(converted)}. {fix}")
        kept = convert(text, self._backend, unsupported="keep")
        assert kept is text, f'unsupported="keep" made a {describe_type(kept)} of text. {fix}'
