"""Tests of what is shared, what is copied, and how long memory lives."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import numpy as np
import pytest

from arrayferry._errors import CopyRequiredError

from .arrays import VALUE_METHODS, Given
from .base import BackendTests, convert
from .same import same
from .samples import CUBE, LARGE, numbers, sample
from .ways import STATED, WayTests

__all__ = ["MemoryTests"]


class MemoryTests(WayTests):
    """The tests of memory."""

    # Memory.

    def test_copy_true_copies(self) -> None:
        """With `copy=True`, a write to one array is never seen in the other."""
        self._check_ways(True, self._memory_cases(), self._array_cases())

    def test_results_are_independent(self) -> None:
        """A result stays as it is when the method is called again."""
        for shape in ((2, 3), CUBE, (1000,)):
            for shift in (1, 2):
                values = [sample(self._usual(), shape), sample(self._usual(), shape, shift)]
                for method in VALUE_METHODS:
                    fix = f"Return new memory from {method}()"
                    if method != "copy":
                        fix += (
                            f", or set {method}_shares to None or True if it is a view of the array"
                        )
                    arrays = [self._argument(method, each) for each in values]
                    first = self._gives(method, arrays[0], values[0], "for two arrays")
                    case = "for the second of two arrays of one shape"
                    self._gives(method, arrays[1], values[1], case)
                    same(
                        first if method == "to_numpy" else self.read(first),
                        values[0],
                        f"{method}() was called with another array, and the first result changed",
                        fix,
                    )

    def test_immutable_arrays_never_change(self) -> None:
        """No write to NumPy memory reaches an array that must never change."""
        if self._backend.memory in ("immutable", "lazy"):
            self._check_ways(None, self._memory_cases(), self._array_cases())

    def test_read_only_memory_is_never_written(self) -> None:
        """No write to an array of the library reaches a read-only NumPy array."""
        if self._writable:
            cases = [
                given._replace(case=f"read-only, {given.case}") for given in self._memory_cases()
            ]
            for given in cases:
                given.x.flags.writeable = False
            self._check_ways(None, cases, ())

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot if it is "immutable"."""
        memory, array, failure = self._backend.memory, self.make(numbers(self._usual(), (4,))), ""
        if memory not in ("writable", "immutable"):
            return
        try:
            if memory == "writable":
                self.write(array, -1)
            else:
                BackendTests.write(self, array, -1)
        except Exception as error:
            failure = f" ({type(error).__name__}: {error})"
        written = (self.read(array) == -1).any()
        if memory == "writable":
            assert written, (
                f"memory is 'writable', but an array could not be written to{failure}: define write(self, array, value) in "
                "the test, or set memory to 'immutable' if arrays never change"
            )
        else:
            assert not written, (
                "memory is 'immutable', but an array could be written to: set it to 'writable'"
            )

    def test_sharing_is_as_stated(self) -> None:
        """`to_numpy_shares` and `from_numpy_shares` are correct, checked by writing."""
        self._check_ways(STATED, self._memory_cases(), self._array_cases())

    def test_copy_false_shares_or_raises(self) -> None:
        """With `copy=False`, memory is shared, or the conversion raises."""
        self._check_ways(False, self._memory_cases(), self._array_cases())

    def _check_ways(
        self, copy: bool | str | None, memory: Iterable[Given], arrays: Iterable[Given]
    ) -> None:
        """Check the way from NumPy with memory of NumPy, and others with arrays of the library."""
        from_numpy, *others = self._ways(copy)
        for cases, ways in ((memory, [from_numpy]), (arrays, others)):
            for given in cases:
                for way, function in ways:
                    try:
                        y = function(given.x)
                    except CopyRequiredError:
                        continue
                    given = self._check_writes(way, given, y)
                if copy == STATED and ways is others:
                    self._check_view(given)

    def _check_view(self, given: Given) -> None:
        """Check what `to_numpy` returns where it cannot be written to, or must not be."""
        mine = self._backend
        out = mine.to_numpy(given.x)
        if mine.memory in ("immutable", "lazy") and mine.to_numpy_shares is not False:
            assert not out.flags.writeable, (
                "to_numpy returned a writable view of memory that must never change: return a read-only view, or set "
                f"`memory` or `to_numpy_shares`, {given.case}"
            )
        if mine.to_numpy_shares and not out.flags.writeable:
            assert np.shares_memory(out, mine.to_numpy(given.x)), (
                f"to_numpy_shares is True, but each call returns other memory: set it to None or False, {given.case}"
            )

    def test_large_arrays(self) -> None:
        """An array of 16 MiB keeps its values, and is shared and copied like smaller ones."""
        if self._backend.is_sparse(self.make(numbers(self._usual(), (1,)))):
            return  # it takes many times as much memory
        case = f"for an array of {LARGE // 2**20} MiB"
        try:
            values = numbers(self._usual(), (LARGE // self._usual().itemsize,))
            x = self._gives("from_numpy", values.copy(), values, case, self._fix_both("from_numpy"))
            for method in ("to_numpy", "copy"):
                self._gives(method, x, values, case)
            for copy in (STATED, True):
                memory = Given(values.copy(), values, case)
                array = Given(self._backend.from_numpy(values.copy()), values, case)
                self._check_ways(copy, [memory], [array])
        except (MemoryError, AssertionError) as error:
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            pytest.skip("not tested: there is too little memory for an array of 16 MiB")

    def test_results_outlive_their_sources(self) -> None:
        """A result is still correct after its source is deleted and the memory may be reused."""
        if gc.get_freeze_count():  # unfreeze() would undo what the caller did
            self._check_lifetimes()
            return
        gc.freeze()  # so that gc.collect() skips what exists now
        try:
            self._check_lifetimes()
        finally:
            gc.unfreeze()

    def _check_lifetimes(self) -> None:
        for memory, values, case in self._memory_cases(more=False):
            into = convert(memory.copy("K"), self._backend)
            out = convert(self.make(values), "numpy")
            gc.collect()
            filler = [np.full(values.shape, -9, values.dtype) for _ in range(8)]
            same(
                self.read(into),
                values,
                f"from numpy, {case}: the NumPy array was deleted, and the result changed",
                "Copy in from_numpy(), or keep a reference to its argument in the result.",
            )
            same(
                out,
                values,
                f"to numpy, {case}: the array was deleted, and the result changed",
                "Copy in to_numpy(), or return a view whose base keeps the array alive.",
            )
            del filler
