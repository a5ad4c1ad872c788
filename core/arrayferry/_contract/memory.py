"""Tests of what is shared, what is copied, and how long memory lives."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from arrayferry._errors import CopyRequiredError

from .arrays import ArrayTests
from .base import OWED, convert
from .same import same
from .samples import CUBE, LARGE, SIZES, laid_out, numbers, sample

__all__ = ["MemoryTests"]


class MemoryTests(ArrayTests):
    """The tests of memory."""

    # Memory.

    def test_copy_true_copies(self) -> None:
        """With `copy=True`, a write to one array is never seen in the other."""
        for memory, case in self._memory_cases():
            values = memory.copy()
            array = convert(memory, self._backend, copy=True)
            memory[...] = -1
            same(
                self.read(array),
                values,
                f"copy=True from numpy, {case}: NumPy was written to, and the array changed",
                "Set from_numpy_shares to None or True, or copy in from_numpy().",
            )
        for array, values, case in self._array_cases():
            out = convert(array, "numpy", copy=True)
            assert out.flags.writeable, (
                f"copy=True to numpy returned a read-only array, {case}. Set to_numpy_shares to None or True, or "
                "return a writable copy from to_numpy()"
            )
            out[...] = -1
            same(
                self.read(array),
                values,
                f"copy=True to numpy, {case}: NumPy was written to, and the array changed",
                "Set to_numpy_shares to None or True, or copy in to_numpy().",
            )
            again = convert(array, self._backend, copy=True)
            if self._writable:
                fix = "Return from copy(x) an array in memory of its own."
                what = f"copy=True within the library, {case}: {{}} was written to, and the {{}} changed"
                self.write(again, -1)
                same(self.read(array), values, what.format("the copy", "array"), fix)
                again = convert(array, self._backend, copy=True)
                self.write(array, -2)
                same(self.read(again), values, what.format("the array", "copy"), fix)

    def test_results_are_independent(self) -> None:
        """A result stays as it is when the method is called again."""
        fix = "Return new memory from {0}(), or set {0}_shares to None or True if it is a view of the array"
        what = "{}() was called with another array, and the first result changed"
        for shape in ((2, 3), CUBE, (1000,)):
            first = sample(self._usual(), shape)
            for shift in (1, 2):
                values = [first, sample(self._usual(), shape, shift)]
                arrays = [self.make(each.copy()) for each in values]
                outputs = [self._to_numpy(array, "for two arrays") for array in arrays]
                same(outputs[0], first, what.format("to_numpy"), fix.format("to_numpy"))
                made = [self._from_numpy(each.copy(), "for two arrays") for each in values]
                same(self.read(made[0]), first, what.format("from_numpy"), fix.format("from_numpy"))
                copies = [self._call("copy", array, what="for two arrays") for array in arrays]
                same(
                    self.read(copies[0]),
                    first,
                    what.format("copy"),
                    "Return new memory from copy().",
                )
                again = "{}(), for the second of two arrays of one shape"
                for method, y in (
                    ("to_numpy", outputs[1]),
                    ("from_numpy", self.read(made[1])),
                    ("copy", self.read(copies[1])),
                ):
                    same(y, values[1], again.format(method), OWED[method])

    def test_immutable_arrays_never_change(self) -> None:
        """No write to NumPy memory reaches an array that must never change."""
        if self._backend.memory not in ("immutable", "lazy"):
            return
        what = (
            f"NumPy was written to, and an array changed whose memory is {self._backend.memory!r}"
        )
        for memory, case in self._memory_cases():
            values = memory.copy()
            array = convert(memory, self._backend)
            memory[...] = -1
            same(
                self.read(array),
                values,
                f"from numpy, {case}: {what}",
                "Copy in from_numpy(), or set from_numpy_shares to None or True.",
            )
        for array, values, case in self._array_cases():
            out = convert(array, "numpy")
            if out.flags.writeable:
                out[...] = -1
            same(
                self.read(array),
                values,
                f"to numpy, {case}: {what}",
                "Return a read-only view from to_numpy(), or a copy; set to_numpy_shares to None or True if it is a "
                "view.",
            )

    def test_read_only_memory_is_never_written(self) -> None:
        """No write to an array of the library reaches a read-only NumPy array."""
        if not self._writable:
            return
        for memory, case in self._memory_cases():
            values = memory.copy()
            memory.flags.writeable = False
            array = convert(memory, self._backend)
            if self._backend.name == "numpy":
                assert not array.flags.writeable, "a read-only NumPy array became writable"
                continue
            self.write(array, -1)
            same(
                memory,
                values,
                f"read-only NumPy memory, {case}: the array was written to, and the memory changed",
                "Set from_numpy_shares to None or True, or copy in from_numpy().",
            )

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot if it is "immutable"."""
        memory = self._backend.memory
        if memory not in ("writable", "immutable"):
            return
        array = self.make(self._numbers(4).copy())
        before = self.read(array)
        failure = ""
        try:
            if memory == "writable":
                self.write(array, -1)
            else:
                array[...] = -1
        except Exception as error:
            failure = f" ({type(error).__name__}: {error})"
        written = self.read(array).tolist() != before.tolist()
        if memory == "writable":
            assert written, (
                f"memory is 'writable', but an array could not be written to{failure}: define "
                "write(self, array, value) in the test, or set memory to 'immutable' if arrays never change"
            )
        else:
            assert not written, (
                "memory is 'immutable', but an array could be written to: set it to 'writable'"
            )

    def test_sharing_is_as_stated(self) -> None:
        """`to_numpy_shares` and `from_numpy_shares` are correct, checked by writing."""
        for array, values, case in self._array_cases():
            self._check_sharing(array, values, case)
        for memory, case in self._memory_cases():
            values = memory.copy()
            array = self._from_numpy(memory, case)
            memory[...] = -1
            if self._backend.from_numpy_shares is False:
                same(
                    self.read(array),
                    values,
                    f"from_numpy_shares is False, but it shares: set it to None or True, {case}",
                )
            if self._backend.from_numpy_shares:
                assert (self.read(array) == -1).all(), (
                    f"from_numpy_shares is True, but it copies: set it to None or False, {case}"
                )

    def _check_sharing(self, array: Any, values: np.ndarray[Any, Any], case: str) -> None:
        """Check what `to_numpy_shares` says of an array."""
        shares = self._backend.to_numpy_shares
        out = self._to_numpy(array, case)
        if shares is False and out.flags.writeable:
            out[...] = -1
            same(
                self.read(array),
                values,
                f"to_numpy_shares is False, but it shares: set it to None or True, {case}",
            )
        if shares and self._writable:
            self.write(array, -1)
            assert (out == -1).all(), (
                f"to_numpy_shares is True, but it copies: set it to None or False, {case}"
            )
        if self._backend.memory in ("immutable", "lazy") and shares is not False:
            assert not out.flags.writeable, (
                "to_numpy returned a writable view of memory that must never change: return a read-only "
                f"view, or set `memory` or `to_numpy_shares`, {case}"
            )
        if shares and not out.flags.writeable:
            again = self._to_numpy(array, case)
            assert np.shares_memory(out, again), (
                f"to_numpy_shares is True, but each call returns other memory: set it to None or False, {case}"
            )

    def test_copy_false_shares_or_raises(self) -> None:
        """With `copy=False`, memory is shared, or the conversion raises."""
        for memory, case in self._memory_cases():
            try:
                array = convert(memory, self._backend, copy=False)
            except CopyRequiredError:
                continue
            memory[...] = -1
            assert (self.read(array) == -1).all(), (
                f"copy=False from numpy copied, {case}: set from_numpy_shares to None or False"
            )
        for array, _, case in self._array_cases():
            try:
                out = convert(array, "numpy", copy=False)
            except CopyRequiredError:
                continue
            if self._writable:
                shared = np.shares_memory(out, self._to_numpy(array, case))
                self.write(array, -2)
                # a library may move an array that is written to while its memory is in use elsewhere
                moved = shared and not np.shares_memory(out, self._to_numpy(array, case))
                assert (out == -2).all() or moved, (
                    f"copy=False to numpy copied, {case}: set to_numpy_shares to None or False"
                )

    def test_large_arrays(self) -> None:
        """An array of 16 MiB keeps its values, and is shared and copied like smaller ones."""
        array = self.make(self._numbers(1))
        if self._backend.is_sparse(array):  # it takes many times as much memory
            return
        try:
            self._check_large(LARGE // self._usual().itemsize)
        except (MemoryError, AssertionError) as error:
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            pytest.skip("not tested: there is too little memory for an array of 16 MiB")

    def _check_large(self, size: int) -> None:
        backend, case = self._backend, f"for an array of {LARGE // 2**20} MiB"
        values, some = self._numbers(size), [0, size // 2, size - 1]
        memory = values.copy()
        array = self._from_numpy(memory, case)
        same(self.read(array), values, f"from_numpy(), {case}", self._fix("from_numpy"))
        memory[some] = -1
        changed = self.read(array)[some] == -1
        if backend.from_numpy_shares is not None:
            told = (
                "shares: set it to None or True"
                if changed.any()
                else "copies: set it to None or False"
            )
            assert changed.all() == changed.any() == backend.from_numpy_shares, (
                f"from_numpy_shares is {backend.from_numpy_shares}, but it {told}, {case}"
            )
        memory[some] = values[some]
        array = convert(memory, backend, copy=True)
        memory[some] = -1
        fix = "Set from_numpy_shares to None or True, or copy in from_numpy()."
        same(
            self.read(array)[some],
            values[some],
            f"copy=True from numpy, {case}: NumPy was written to, and the array changed",
            fix,
        )
        out = self._to_numpy(array, case)
        same(out, values, f"to_numpy(), {case}", OWED["to_numpy"])
        own = convert(array, "numpy", copy=True)
        own[some] = -1
        same(
            self.read(array)[some],
            values[some],
            f"copy=True to numpy, {case}: NumPy was written to, and the array changed",
            "Set to_numpy_shares to None or True, or copy in to_numpy().",
        )
        del own
        copied = self._call("copy", array, what=case)
        same(self.read(copied), values, f"copy(), {case}", OWED["copy"])
        if self._writable:
            self.write(copied, -1)
            same(
                self.read(array)[some],
                values[some],
                f"copy(), {case}: the copy was written to, and the array changed",
                OWED["copy"],
            )
        self._check_sharing(array, values, case)

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
        layouts = [
            (laid, f"an array of shape {CUBE} {name}")
            for name, laid in laid_out(numbers(self._usual(), CUBE))
        ]
        sizes = [(self._numbers(size), f"{size * self._usual().itemsize} bytes") for size in SIZES]
        for memory, case in (*sizes, *layouts):
            values = memory.copy()
            into = convert(memory.copy("K"), self._backend)
            source = self.make(values)
            out = convert(source, "numpy")
            del source
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
