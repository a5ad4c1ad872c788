"""Tests of conversions to and from NumPy, of arrays that hold more than values, and of missing dtypes."""

from __future__ import annotations

import contextlib

import numpy as np

from arrayferry._errors import UnsupportedDtypeError

from .arrays import ArrayTests
from .base import convert, refused
from .classes import describe_type
from .duties import STRIDES
from .same import kept, same
from .samples import layouts

__all__ = ["ConversionTests"]

_KEEP_DTYPE = "Change from_numpy() to keep the dtype of its argument, which dtypes() names"
_NAME_DTYPES = "Return from dtypes() the names of the dtypes that arrays can have now, or None if that is all of NumPy's"


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
        array, values = self._ordinary()
        for method in ("to_numpy", "copy"):
            self._gives(method, array, values, "for an ordinary array")
            fix = f"Change {method}() so that it leaves its argument as it is."
            same(self.read(array), values, f"the array, after {method}() was called with it", fix)
        convert(array, "numpy", copy=True)
        fix = "Change to_numpy() and copy() so that they leave their argument as it is."
        same(self.read(array), values, "the array, after it was converted", fix)
        self._gives("from_numpy", values.copy(), values, "for an ordinary array")
        with kept(values, "the NumPy array, after it was converted"):
            convert(values, self._backend, copy=True)

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        other = "numpy" if self._backend.name != "numpy" else "torch"
        for array, word in self.unportable():
            what = f"a {describe_type(array)} with more than values ({word})"
            fix = "Raise arrayferry.ConversionError(reason, remedy=...) from to_numpy(), since something was lost"
            error = refused({"x": array}, other, what, fix)
            for is_right, problem in (
                (
                    word in str(error),
                    "does not mention it. Change the reason of the ConversionError that to_numpy() raises",
                ),
                (
                    error.remedy,
                    "has no remedy. Pass remedy= to the ConversionError that to_numpy() raises: what to call first",
                ),
                ("['x']" in str(error), "does not name the place"),
            ):
                assert is_right, f"the error for {what} {problem}: {error}"

    def test_sparse_arrays(self) -> None:
        """`is_sparse` is true or false, and `to_dense` returns the values of sparse arrays."""
        array, values = self._ordinary()
        if self._ask("is_sparse", array, case="for an ordinary array"):
            dense = self._ask("to_dense", array, case="for an ordinary array")
            if not isinstance(dense, np.ndarray):
                self._recognised(dense, "to_dense()")
                still = self._backend.is_sparse(dense)
                assert not still, f"to_dense() returned a sparse array. {self._fix('to_dense')}"
                dense = self._ask("to_numpy", dense, case="for what to_dense() returned")
            same(dense, values, "to_dense()", self._fix("to_dense"))

    # Dtypes.

    def test_missing_dtypes_follow_the_narrowing_rule(self) -> None:
        """A missing dtype becomes the widest of its kind, and numbers are never lost silently."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        for name, number in (("int64", 2**40), ("uint64", 2**60), ("float64", 1e300)):
            values, what = np.array([number], dtype=name), f"{number:g} of dtype {name}"
            if name in supported:
                fix = f"Leave {name!r} out of dtypes(), or keep it in from_numpy()."
                same(
                    self.read(convert(values, self._backend)),
                    values,
                    f"from_numpy(), for {what}",
                    fix,
                )
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
        if self._backend.dtypes() is None:
            case = "for text, since dtypes() is None, which means all of NumPy's"
            self._call("from_numpy", text, text, case)
            return
        refused(text, self._backend, "text", _NAME_DTYPES)
        unchanged = convert(text, self._backend, unsupported="keep")
        assert unchanged is text, (
            f'unsupported="keep" made a {describe_type(unchanged)} of text. {_NAME_DTYPES}'
        )
