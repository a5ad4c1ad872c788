"""Tests of memory: whether it is shared or copied, and how long it lives."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import numpy as np
import pytest

from arrayferry._errors import CopyRequiredError
from arrayferry._plugin.backend import Backend
from arrayferry._registry.registry import default_registry
from arrayferry._route.memory import never_changes

from .arrays import VALUE_METHODS, ArrayTests
from .base import BackendTests, Given, convert
from .checks import Values, same
from .samples import CUBE, LARGE, numbers, sample

STATED = "stated"
"""In place of the option `copy`: call the methods of the plugin, and check what it states of them."""
_OWN_MEMORY = {
    "from_numpy": "Set from_numpy_shares to None or True, or copy in from_numpy().",
    "to_numpy": "Set to_numpy_shares to None or True, and return a read-only view if arrays never change, or copy in "
    "to_numpy().",
    "copy": "Return from copy(x) an array in memory of its own.",
}
"""The remedy if a method shares memory that it should not."""
_WRITING = {
    "writable": "define write(self, array, value) in the test, or set memory to 'immutable' if arrays never change",
    "immutable": "set it to 'writable'",
}
"""The remedy if arrays cannot be written to although `memory` says so, or the reverse."""
_Side = tuple[Backend, Any]


class Promise(NamedTuple):
    """A call that converts arrays, and its promise about their memory.

    Attributes:
        what: the call, for messages.
        source: the backend of its argument.
        target: the backend of its result.
        fix: the remedy if the promise is broken.
        shares: whether the result shares memory, None if it may, but never memory that must not change.
    """

    what: str
    source: Backend
    target: Backend
    fix: str
    shares: bool | None

    def shares_with(self, backend: Backend, array: Any) -> bool | None:
        """Return whether a write to the other side must be seen in an array, None if it may be."""
        given = backend is self.source and isinstance(array, np.ndarray)
        is_constant = never_changes(backend) or (given and not array.flags.writeable)
        return False if self.shares is None and is_constant else self.shares


class PromiseTests(ArrayTests):
    """Checks promises about memory, of conversions from and to the backend under test."""

    def _promise(self, copy: bool | str | None, method: str) -> Promise | None:
        """Return the promise of a method, with an option `copy` or `STATED`, None if there is none."""
        mine, numpy = self._backend, default_registry().backend("numpy")
        ends = {"from_numpy": (numpy, mine), "to_numpy": (mine, numpy), "copy": (mine, mine)}
        source, target = ends[method]
        if copy == STATED:
            shares = getattr(mine, f"{method}_shares", None)
            found = "copies" if shares else "shares"
            fix = f"{method}_shares is {shares}, but it {found}: set it to None or {not shares}"
            return None if shares is None else Promise(f"{method}()", source, target, fix, shares)
        if method == "copy" and copy is not True:
            return None
        what = f"copy={copy} from {source.name} to {target.name}"
        fix = _OWN_MEMORY[method] if copy is not False else f"Set {method}_shares to None or False."
        return Promise(what, source, target, fix, None if copy is None else not copy)

    def _check_writes(self, promise: Promise, given: Given, y: Any) -> Given:
        """Write to each side and compare the other. Return the array with its new values."""
        copies = promise.shares is False and isinstance(y, np.ndarray)
        assert not copies or y.flags.writeable, (
            f"{promise.what}, {given.case}, returned a read-only array instead of a writable copy. {promise.fix}"
        )
        source, result = (promise.source, given.x), (promise.target, y)
        what = f"{promise.what}, {given.case}: the {{}} was written to, and the {{}}"
        written = self._write(
            promise, source, result, given.values, what.format("source", "result")
        )
        if not promise.shares:
            self._write(promise, result, source, written, what.format("result", "source"))
        return given._replace(values=written)

    def _write(
        self, promise: Promise, to: _Side, other: _Side, values: Values, what: str
    ) -> Values:
        """Write to one side and compare the other with the promise. Return the new values of the former."""
        shares, number = promise.shares_with(*other), float(np.real(values.flat[0])) - 2
        in_use = shares and _share_memory(to, other)
        if shares is None or not self._fill(*to, number):
            return values
        filled = np.broadcast_to(np.asarray(number, values.dtype), values.shape)
        if not shares:
            expected, outcome = values, "changed"
        elif not in_use or _share_memory(to, other):
            expected, outcome = filled, "did not change"
        else:  # the library has moved the array, since its memory was in use elsewhere
            return filled
        actual = self._values_of(*other)
        if values.size > 2**16:  # some elements are enough, and take less time
            actual, expected = actual.flat[::1009], expected.flat[::1009]
        same(actual, expected, f"{what} {outcome}", promise.fix)
        return filled

    def _values_of(self, backend: Backend, array: Any) -> Values:
        if backend.name == self._backend.name:
            return self.read(array)
        return np.array(backend.to_numpy(array))

    def _fill(self, backend: Backend, array: Any, value: float) -> bool:
        """Write a value into every element of an array of any backend. Return whether that is possible."""
        if backend.memory != "writable":
            return False
        if isinstance(array, np.ndarray):
            if array.flags.writeable:
                array[...] = value
            return bool(array.flags.writeable)
        if backend.name == self._backend.name:
            self.write(array, value)
            return True
        numpy = default_registry().backend("numpy")
        return bool(backend.to_numpy_shares) and self._fill(numpy, backend.to_numpy(array), value)


def _share_memory(*sides: _Side) -> bool:
    return np.shares_memory(*(backend.to_numpy(array) for backend, array in sides))


class MemoryTests(PromiseTests):
    """The tests of memory."""

    # Memory.

    def test_copy_true_copies(self) -> None:
        """With `copy=True`, a write to one array is never seen in the other."""
        self._check_promises(True)

    def test_results_are_independent(self) -> None:
        """A result stays as it is when the method is called again."""
        for shape in ((2, 3), CUBE, (1000,)):
            for shift in (1, 2):
                first = sample(self._usual(), shape)
                for method in VALUE_METHODS:
                    fix = f"Return new memory from {method}()"
                    if method != "copy":
                        fix += (
                            f", or set {method}_shares to None or True if it is a view of the array"
                        )
                    given = self._given(method, first, "for two arrays")
                    second = sample(self._usual(), shape, shift)
                    case = "for the second of two arrays of one shape"
                    result = self._gives(method, given)
                    self._gives(method, self._given(method, second, case))
                    what = f"{method}() was called with another array, and the first result changed"
                    seen = result if method == "to_numpy" else self.read(result)
                    same(seen, first, what, fix)

    def test_immutable_arrays_never_change(self) -> None:
        """No write to NumPy memory reaches an array that must never change."""
        if never_changes(self._backend):
            self._check_promises(None)

    def test_read_only_memory_is_never_written(self) -> None:
        """No write to an array of the library reaches a read-only NumPy array."""
        for given in self._memory_cases() if self._backend.memory == "writable" else ():
            given.x.flags.writeable = False
            case = f"read-only, {given.case}"
            self._check_case(None, given._replace(case=case), "from_numpy")

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot if it is "immutable"."""
        memory, array, failure = self._backend.memory, self.make(numbers(self._usual(), (4,))), ""
        if memory not in _WRITING:
            return
        try:
            if memory == "writable":
                self.write(array, -1)
            else:
                BackendTests.write(self, array, -1)
        except Exception as error:
            failure = f" ({type(error).__name__}: {error})"
        written = bool((self.read(array) == -1).any())
        assert written == (memory == "writable"), (
            f"memory is {memory!r}, but an array could {'' if written else 'not '}be written to{failure}: {_WRITING[memory]}"
        )

    def test_sharing_is_as_stated(self) -> None:
        """`to_numpy_shares` and `from_numpy_shares` are correct, checked by writing."""
        self._check_promises(STATED)

    def test_copy_false_shares_or_raises(self) -> None:
        """With `copy=False`, memory is shared, or the conversion raises."""
        self._check_promises(False)

    def _check_promises(self, copy: bool | str | None) -> None:
        """Check conversions from NumPy with memory of NumPy, and others with arrays of the library."""
        for given in self._memory_cases():
            self._check_case(copy, given, "from_numpy")
        for given in self._array_cases():
            self._check_case(copy, given, "to_numpy", "copy")

    def _check_case(self, copy: bool | str | None, given: Given, *methods: str) -> Given:
        """Check promises for one array. Return it with its new values."""
        for method in methods:
            promise = self._promise(copy, method)
            if promise is None:
                continue
            try:
                if copy == STATED:
                    y = self._ask(method, given.x, case=given.case)
                else:
                    y = convert(given.x, promise.target, copy=copy)
            except CopyRequiredError:
                continue
            if promise.target is self._backend:
                self._recognised(y, promise.what)
            given = self._check_writes(promise, given, y)
        if copy == STATED and "to_numpy" in methods:
            self._check_view(given.x, given.case)
        return given

    def _check_view(self, array: Any, case: str) -> None:
        """Check whether the result of `to_numpy` is read-only where it must be, and shared where it is read-only."""
        mine = self._backend
        out = self._ask("to_numpy", array, case=case)
        writable, shares = out.flags.writeable, mine.to_numpy_shares
        assert not (writable and shares is not False and never_changes(mine)), (
            "to_numpy returned a writable view of memory that must never change: return a read-only view, or set `memory` "
            f"or `to_numpy_shares`, {case}"
        )
        assert writable or not shares or np.shares_memory(out, mine.to_numpy(array)), (
            f"to_numpy_shares is True, but each call returns other memory: set it to None or False, {case}"
        )

    def test_large_arrays(self) -> None:
        """An array of 16 MiB keeps its values, and is shared and copied like smaller ones."""
        if self._backend.is_sparse(self.make(numbers(self._usual(), (1,)))):
            return  # it takes many times as much memory
        case = f"for an array of {LARGE // 2**20} MiB"
        try:
            values = numbers(self._usual(), (LARGE // self._usual().itemsize,))
            given = Given(values.copy(), values, case, by_plugin=True)
            x = self._gives("from_numpy", given)
            for method in ("to_numpy", "copy"):
                self._gives(method, given._replace(x=x))
            memory, array = Given(values.copy(), values, case), given._replace(x=x)
            for copy in (STATED, True):
                memory = self._check_case(copy, memory, "from_numpy")
                array = self._check_case(copy, array, "to_numpy", "copy")
        except (MemoryError, AssertionError) as error:
            if not isinstance(error, MemoryError) and not isinstance(error.__cause__, MemoryError):
                raise
            pytest.skip("not tested: there is too little memory for an array of 16 MiB")

    def test_results_outlive_their_sources(self) -> None:
        """A result stays correct after its source was deleted and the memory may be in use again."""
        if gc.get_freeze_count():  # unfreeze() would also undo the freeze() of the caller
            self._check_lifetimes()
            return
        gc.freeze()  # so that gc.collect() skips all objects that exist now
        try:
            self._check_lifetimes()
        finally:
            gc.unfreeze()

    def _check_lifetimes(self) -> None:
        for given in self._memory_cases(more=False):
            values = given.values
            into = convert(given.x.copy("K"), self._backend)
            out = convert(self.make(values), "numpy")
            gc.collect()
            filler = [np.full(values.shape, -9, values.dtype) for _ in range(8)]
            what = (
                f"{given.case}: the array that it was made from was deleted, and the result changed"
            )
            fix = "Copy in from_numpy(), or keep a reference to its argument in the result."
            same(self.read(into), values, f"from numpy, {what}", fix)
            fix = "Copy in to_numpy(), or return a view whose base keeps the array alive."
            same(out, values, f"to numpy, {what}", fix)
            del filler
