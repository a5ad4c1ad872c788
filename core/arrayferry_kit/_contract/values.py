"""Tests of recognised types, of the results of simple methods, of values and dtypes, of memory, and of devices."""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import Any

import numpy as np
import pytest

import arrayferry as af
from arrayferry._utilities.text import describe_value
from arrayferry.extending import dtype_info, dtype_named, has_item, unknown_dtypes
from arrayferry.typing import AnyArray

from .arrays import METHODS, BackendTests
from .calls import Given, convert
from .checks import Values, ask, equal, every, same
from .samples import CUBE, LARGE, SIZES, case_of, numbers, sample, special

_ASKED: list[tuple[Any, ...]] = [
    ("is_traced",),
    ("is_sparse",),
    ("devices.fence",),
    ("dtype_hint", "float64", "int64", "bfloat16"),
    ("devices.is_out_of_memory", ValueError("a wrong value")),
]
"""Methods with simple results, such as bools or names, and arguments to try. Without arguments, an array is passed."""
COPY = (None, True, False)
"""The values of the option `copy` to try with `to_numpy` and `from_numpy`. With `copy`, only True is tried."""
STATED = [("stated", method) for method in METHODS]
ASKED = [(copy, method) for copy in COPY for method in METHODS if copy or method != "copy"]


class ValueTests(BackendTests):
    """The tests of recognition, values and dtypes."""

    def test_dtypes_are_known(self) -> None:
        """`dtypes` names dtypes as NumPy and ml_dtypes spell them."""
        unknown_names = unknown_dtypes(self.ask("dtypes") or ())
        equal(unknown_names, [], "dtypes(): names that neither NumPy nor ml_dtypes has")

    def test_answers(self) -> None:
        """Methods with simple results, such as `is_sparse`, return a correct result for ordinary arguments."""
        argument = self._ordinary()
        for method, *args in _ASKED:
            for arg in args or [argument.x]:
                self.ask(method, arg, case=repr(arg) if args else argument.case)

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` returns the name of a dtype of the requested kind, such as "float"."""
        for kind in ("bool", "int", "float", "complex"):
            dtype_name = self.tested.number_dtype(kind)
            dtype = dtype_named(dtype_name) if isinstance(dtype_name, str) else None
            actual_kind = None if dtype is None else dtype_info(dtype).kind
            equal(
                actual_kind,
                kind,
                f"number_dtype({kind!r}) returned {dtype_name!r}, whose kind must be the requested kind",
            )

    def test_one_number(self) -> None:
        """If the type of an array is in `item_types`, `item` of an array with one element returns a Python number."""
        dtypes = [dtype for dtype in self._dtypes() if dtype.char in "?bhilqBHILQd"]
        for dtype in (self._usual(), *dtypes):
            for number in {1, 0, *map(int, special(dtype)[: 0 if dtype.kind == "f" else 2])}:
                argument = self._given(np.array([[number]], dtype))
                if not has_item(self.tested, type(argument.x)):
                    return
                label = f"item() of {describe_value(argument.x)}, whose type is in item_types, {argument.case}"
                item = ask(lambda x: x.item(), argument.x, what=label)
                equal(repr(item), repr(argument.values.item()), label)

    # Tests of values.

    @pytest.mark.parametrize("method", METHODS)
    def test_values(self, method: str) -> None:
        """The result of a method has the values, shape and dtype of its argument, in every layout and if repeated."""
        call = self._call(method)
        for dtype in self._dtypes(method):
            for arguments in self._samples(method, dtype):
                self.run(call, *arguments)

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """The conversion of an array from `unportable` raises a `ConversionError` with a reason and a remedy."""
        other_backend = af.registry.backend("numpy" if self.tested.name != "numpy" else "torch")
        for array, word in self.unportable():
            label = f"to_numpy(), for {describe_value(array)}, which contains more than values"
            try:
                outcome_text, remedy = f"{af.convert({'x': array}, other_backend)!r:.80}", ""
            except af.ConversionError as error:
                outcome_text, remedy = str(error), error.remedy
            is_complete = remedy and word in outcome_text and "['x']" in outcome_text
            expected_text = f"a ConversionError with a remedy, which names {word} and the place"
            assert is_complete, f"{label}: {outcome_text} instead of {expected_text}"


class MemoryTests(BackendTests):
    """The tests of memory: whether it is shared or copied, and how long it lives."""

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot be if it is "immutable"."""
        memory, array = self.tested.memory, self.make(numbers(self._usual(), (4,)))
        if memory == "writable":
            ask(self.write, array, -1, what="write()")
        elif memory == "immutable":
            with suppress(Exception):
                BackendTests.write(self, array, -1)
        is_written = bool((self.read(array) == -1).any())
        change_text = "changed" if is_written else "did not change"
        assert is_written == (memory == "writable"), (
            f"memory is {memory!r}, but write() {change_text} an array"
        )

    @pytest.mark.parametrize(("copy", "method"), [*STATED, *ASKED])
    def test_memory(self, method: str, copy: bool | str | None) -> None:
        """Memory is shared or copied as the backend states or `copy` requests, for arrays of 4 bytes to 16 MiB."""
        call = self._call(method, copy)
        # a sparse array of the largest size would need too much memory
        is_sparse = self.tested.is_sparse(self._ordinary().x)
        sizes = (*SIZES, LARGE) if copy == "stated" and not is_sparse else SIZES
        for argument in self._memory(method, sizes):
            try:
                (y,) = self.run(call, argument, writes=True)
            except AssertionError as error:
                if copy is not False or not isinstance(error.__cause__, af.CopyRequiredError):
                    raise
                continue
            if method == "from_numpy" and copy is None:
                argument.x.flags.writeable = False
                argument.case += ", read-only"
                self.run(call, argument, writes=True)
            if call.method == "to_numpy" and call.shares and not y.flags.writeable:
                is_shared = np.shares_memory(y, self.tested.to_numpy(argument.x))
                label = f"to_numpy(), for {argument.case}, {call.promise}"
                assert is_shared, f"{label}: two results for one array do not share memory"

    def test_results_outlive_their_sources(self) -> None:
        """A result has the same values after its argument was deleted, even if new arrays reuse the memory."""
        cases = []
        for method in METHODS[:2]:
            target = self._call(method).target
            for argument in self._memory(method):
                label = f"{method}(), for {argument.case}, after the array that it was called with was deleted"
                cases.append((target, convert(argument.x, target), argument.values, label))
                del argument
        gc.collect(1)  # free the memory of the deleted arguments
        filler_arrays = [np.full_like(values, -9) for _, _, values, _ in cases for _ in range(2)]
        for target, y, values, label in cases:
            same(self.values_of(target, y), values, label)
        del filler_arrays


class DeviceTests(BackendTests):
    """The tests of devices."""

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be moved to each device in `devices.names()`, and `device_of` then returns its name."""
        values = np.asfortranarray(sample(self._usual(), CUBE))
        devices, default = list(self.ask("devices.names")), self.ask("devices.default")
        assert default in devices, f"devices.default(): {default!r} instead of one of {devices}"
        argument = Given(values, values, case_of(values))
        (array,) = self.run(self._call("from_numpy"), argument)
        on_device = self.ask("device_of", array, case="an array that was made without a device")
        equal(on_device, default, "the device of from_numpy(x), which must be devices.default()")
        every(partial(self._check_device, device, devices[0], values) for device in devices)

    def _check_device(self, device: str, first: str, values: Values) -> None:
        """Check an array that is made on a device, moved to the first device, moved back, and copied."""
        x: Any = values
        for step_name, options, expected_device in (
            (f"from_numpy(x, {device!r})", {"device": device}, device),
            (f"devices.move(x, {first!r}), for an array on {device}", {"device": first}, first),
            (f"devices.move(x, {device!r}), for an array on {first}", {"device": device}, device),
            (f"copy(), for an array on {device}", {"copy": True}, device),
        ):
            x = convert(x, self.tested, **options)
            actual_device = self.ask("device_of", x, case=f"the result of {step_name}")
            equal(actual_device, expected_device, f"device_of(), for the result of {step_name}")
            same(self.values_of(self.tested, x), values, step_name)
            self.run(self._call("to_numpy"), Given(x, values, f"an array on {expected_device}"))
            self._check_place(x, expected_device, f"an array on {expected_device}")

    def _check_place(self, array: AnyArray, device: str, case: str) -> None:
        """Check the methods of `devices`: `place_of`, `is_on`, `fence` and `use`."""
        place = self.ask("devices.place_of", array, case=case)
        device_beside = self.tested.device_of(convert(sample(self._usual(), (3,)), like=array))
        label = f"the device of another array that is put at devices.place_of(), for {case}"
        equal(device_beside, device, label)
        if not isinstance(place, (str, NoneType)):
            both_cases = f"{case} and the result of devices.place_of()"
            self.ask("devices.is_on", array, place, case=both_cases)
        self.ask("devices.fence", array, case=case)
        with self.ask("devices.use", device):
            pass
