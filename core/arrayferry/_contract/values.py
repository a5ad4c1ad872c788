"""Tests of recognition, of simple answers, of values, shapes and dtypes, and of memory."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import numpy as np
import pytest

import arrayferry as af
from arrayferry._dtypes import dtype_info, dtype_named, unknown_dtypes
from arrayferry._route.memory import never_changes

from .arrays import METHODS, BackendTests
from .calls import Given, convert
from .checks import Values, ask, equal, same
from .classes import any_exists, describe_type
from .samples import LARGE, SIZES, numbers, special

_ASKED: list[tuple[Any, ...]] = [
    ("is_traced",),
    ("fence",),
    ("dtype_hint", "float64", "int64", "bfloat16"),
    ("is_out_of_memory", ValueError("a wrong value")),
]
"""Methods that answer a question, and what to ask, nothing for an ordinary array."""
COPY = (None, True, False)
"""Options of a conversion by `to_numpy` or `from_numpy`. Another one copies by `copy`."""
STATED = [("stated", method) for method in METHODS]
ASKED = [(copy, method) for copy in COPY for method in METHODS if copy or method != "copy"]


class ValueTests(BackendTests):
    """The tests of recognition, values and dtypes."""

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        types, package = self.tested.array_types, self.tested.package
        if types:  # a library without a plugin has none
            importlib.import_module(package)
            assert any_exists(types), (
                f"array_types is {types}, and there is no such type in {package}"
            )

    def test_its_arrays_are_recognised(self) -> None:
        """An array of the library is recognised by its type."""
        self.check_library(self._ordinary().x, self.tested, "make() of the test")

    def test_dtypes_are_known(self) -> None:
        """`dtypes` names dtypes as NumPy and ml_dtypes spell them."""
        unknown = unknown_dtypes(self.ask("dtypes") or ())
        equal(unknown, [], "dtypes(): names that neither NumPy nor ml_dtypes has")

    def test_answers(self) -> None:
        """A method that answers a question returns what it should for what is ordinary."""
        given = self._ordinary()
        for method, *asked in _ASKED:
            for x in asked or [given.x]:
                self.ask(method, x, case=repr(x) if asked else given.case)

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` names a dtype of the right kind."""
        for kind in ("bool", "int", "float", "complex"):
            name = self.tested.number_dtype(kind)
            dtype = dtype_named(name) if isinstance(name, str) else None
            found = None if dtype is None else dtype_info(dtype).kind
            equal(found, kind, f"number_dtype({kind!r}), which returned {name!r}: its kind")

    def test_one_number(self) -> None:
        """`item()` of an array whose type is in `item_types` returns its number."""
        dtypes = [dtype for dtype in self._dtypes() if dtype.char in "?bhilqBHILQd"]
        for dtype in (self._usual(), *dtypes):
            for number in {1, 0, *map(int, special(dtype)[: 0 if dtype.kind == "f" else 2])}:
                given = self._given(np.array([[number]], dtype))
                if not self.tested.has_item(type(given.x)):
                    return
                what = f"item() of a {describe_type(given.x)}, whose type is in item_types, {given.case}"
                item = ask(lambda x: x.item(), given.x, what=what)
                equal(repr(item), repr(given.values.item()), what)

    # Values.

    @pytest.mark.parametrize("method", METHODS)
    def test_values(self, method: str) -> None:
        """A method returns the same values, shape and dtype, whatever the layout, each time, in memory of its own."""
        call = self._call(method)
        for dtype in self._dtypes(method):
            for given in self._samples(method, dtype):
                self.run(call, *given)

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        other = af.registry.backend("numpy" if self.tested.name != "numpy" else "torch")
        for array, word in self.unportable():
            what = f"to_numpy(), for a {describe_type(array)} with more than values"
            try:
                came, remedy = f"{af.convert({'x': array}, other)!r:.80}", ""
            except af.ConversionError as error:
                came, remedy = str(error), error.remedy
            is_complete = remedy and word in came and "['x']" in came
            expected = f"a ConversionError with a remedy, which names {word} and the place"
            assert is_complete, f"{what}: {came} instead of {expected}"

    def test_sparse_arrays(self) -> None:
        """`is_sparse` is true or false, and `to_dense` returns the values of sparse arrays."""
        given = self._ordinary()
        if self.ask("is_sparse", given.x, case=given.case):
            dense = self.ask("to_dense", given.x, case=given.case)
            what = f"to_dense(), for {given.case}"
            if not isinstance(dense, np.ndarray):
                self.check_library(dense, self.tested, what)
                equal(self.tested.is_sparse(dense), False, f"{what}: is_sparse() of its result")
                dense = self.ask("to_numpy", dense, case="the result of to_dense()")
            same(dense, given.values, what)


class MemoryTests(BackendTests):
    """The tests of memory: whether it is shared or copied, and how long it lives."""

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot if it is "immutable"."""
        memory, array, failure = self.tested.memory, self.make(numbers(self._usual(), (4,))), ""
        if memory not in ("writable", "immutable"):
            return
        write = type(self).write if memory == "writable" else BackendTests.write
        try:
            write(self, array, -1)
        except Exception as error:
            failure = f" ({type(error).__name__}: {error})"
        written = bool((self.read(array) == -1).any())
        assert written == (memory == "writable"), (
            f"memory is {memory!r}, but an array could {'' if written else 'not '}be written to{failure}"
        )

    @pytest.mark.parametrize(("copy", "method"), [*STATED, *ASKED])
    def test_memory(self, method: str, copy: bool | str | None) -> None:
        """Memory is shared or copied as stated or asked for, for arrays of 4 bytes to 16 MiB, checked by writing."""
        call = self._call(method, copy)
        is_promised = copy != "stated" or call.shares is not None
        sizes: tuple[int, ...] = SIZES
        if copy == "stated" and not self.tested.is_sparse(
            self._ordinary().x
        ):  # these take more memory
            sizes = (*SIZES, LARGE)
        for given in self._memory(method, sizes):
            try:
                (y,) = self.run(call, given, writes=is_promised)
            except AssertionError as error:
                if copy is not False or not isinstance(error.__cause__, af.CopyRequiredError):
                    raise
                continue
            if method == "from_numpy" and copy is None:
                given.x.flags.writeable = False
                given.case += ", read-only"
                self.run(call, given, writes=True)
            if call.method == "to_numpy":
                self._check_view(given, y, f"to_numpy(), for {given.case}, {call.promise}")

    def _check_view(self, given: Given, y: Values, what: str) -> None:
        """Check whether a result of `to_numpy` is read-only where it must be, and shared where it is read-only."""
        writable, shares = y.flags.writeable, self.tested.to_numpy_shares
        if writable and shares is not False:
            equal(
                never_changes(self.tested),
                False,
                f"{what}: a writable view of memory that never changes",
            )
        if not writable and shares:
            again = self.tested.to_numpy(given.x)
            equal(np.shares_memory(y, again), True, f"{what}: it shares memory with another result")

    def test_results_outlive_their_sources(self) -> None:
        """A result stays correct after its source was deleted and the memory may be in use again."""
        results = []
        for method in METHODS[:2]:
            target = self._call(method).target
            for given in self._memory(method):
                what = f"{method}(), for {given.case}, after the array that it was called with was deleted"
                results.append((target, convert(given.x, target), given.values, what))
                del given
        gc.collect(1)  # of what was made just now
        filler = [np.full_like(values, -9) for _, _, values, _ in results for _ in range(2)]
        for target, y, values, what in results:
            same(self.values_of(target, y), values, what)
        del filler
