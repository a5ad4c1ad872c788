"""Tests of many arrays at once, of exchanges by DLPack, of pairs of libraries, and of direct converters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from arrayferry import Backend, Converter, Inline, Options, registry
from arrayferry.extending import describe_error, never_changes, overrides, runs_backwards

from .arrays import BackendTests
from .calls import Call, Given, convert, one_by_one
from .checks import ask, equal, every
from .samples import CUBE, LARGE, SHAPES, case_of, dtypes_of, numbers, odd_layouts, sample


class PairTests(BackendTests):
    """The tests of many arrays at once, and of conversions between two libraries."""

    @pytest.mark.parametrize("method", ["to_numpy_many", "compute"])
    def test_many_at_once(self, method: str) -> None:
        """A method for many arrays returns their values, in order. Results of `compute` own their memory."""
        tested = self.tested
        call = Call(f"{method}()", getattr(tested, method), tested, None)
        dtypes = [d for d in self._dtypes() if d.kind in "biufc"] or [self._usual()]
        few_arrays = [sample(self._usual(), shape) for shape in SHAPES]
        many_arrays = [sample(d, shape, 1) for d in dtypes[:6] for shape in (*SHAPES, CUBE)]
        shifted_arrays = [sample(values.dtype, values.shape, 2) for values in many_arrays]
        for values in (few_arrays, few_arrays[:1], [], many_arrays, shifted_arrays):
            arguments = [self._given(x) for x in values]
            ys = self.run(call, *arguments)
            if method == "compute" and overrides(tested, Backend.compute):
                for y in (y for y in ys if isinstance(y, np.ndarray)):
                    label = "compute(): returned a read-only array instead of a writable one"
                    assert y.flags.writeable, label
                    y[...] = np.zeros((), y.dtype)
                self.run(
                    call._replace(name="compute(), after its results were written to"), *arguments
                )

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exported and loaded by DLPack, if "cpu" is in `dlpack.kinds`."""
        tested, dlpack = self.tested, self.tested.dlpack
        if dlpack is None or "cpu" not in dlpack.kinds:
            return
        round_trip = one_by_one(lambda x: dlpack.load(dlpack.export(x)))
        for argument in self._in_layouts(sample(self._usual(), CUBE)):
            if not runs_backwards(argument.x):
                self.ask("dlpack.export", argument.x, case=argument.case)
                self.run(Call("dlpack.load(dlpack.export())", round_trip, tested, tested), argument)

    def test_dtypes_are_named(self) -> None:
        """`dlpack.dtype_of` returns the name of the dtype of an array, if the backend has `dlpack`."""
        for dtype in self._dtypes() if self.tested.dlpack is not None else ():
            argument = self._given(sample(dtype, (2, 3)))
            dtype_name = self.ask("dlpack.dtype_of", argument.x, case=argument.case)
            equal(dtype_name, dtype.name, f"dlpack.dtype_of(), for {argument.case}")

    def test_addresses(self) -> None:
        """`address` returns the memory address of the first element."""
        for argument in self._in_layouts(numbers(self._usual(), CUBE)):
            address = self.ask("address", argument.x, case=argument.case)
            if address is not None and self.tested.to_numpy_shares:
                expected_address = self.tested.to_numpy(argument.x).ctypes.data
                equal(address, expected_address, f"address(), for {argument.case}")

    def test_pairs_with_all_others(self) -> None:
        """Arrays in a list are converted to every other backend and back, with equal values."""
        tested, values = self.tested, sample(self._usual(), CUBE)
        arguments = [self._given(values), *islice(self._in_layouts(values), 1)]
        for other in self._others():
            call_out = Call(f"convert() to {other.name}", partial(convert, to=other), tested, other)
            ys = [
                (argument.case, y)
                for argument, y in zip(arguments, self.run(call_out, *arguments), strict=True)
            ]
            call_in = Call(
                f"convert() from {other.name}", partial(convert, to=tested), other, tested
            )
            self.run(call_in, *(Given(y, self.values_of(other, y), case) for case, y in ys))

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        for method in ("to_numpy", "from_numpy"):
            argument = self._ordinary(method)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.run(self._call(method, None), argument)


_Convert = Callable[[list[Any]], Any]


class DirectTests(BackendTests):
    """The tests of direct converters."""

    def test_direct_converters_match_the_general_path(self) -> None:
        """Direct converters return equal values for one or many arrays, in any layout, with and without `copy=True`."""
        tested_name, backends = self.tested.name, registry.backends()
        checks = []
        for direct in registry.catalog.converters:
            names = direct.source, direct.target
            ends = (
                [backends[name] for name in names if name in backends]
                if tested_name in names
                else []
            )
            if len(ends) == 2 and all(end.problem() is None for end in ends):
                device_kinds = {str(name).partition(":")[0] for name in ends[1].devices.names()}
                if direct.source_device == "cpu" and direct.target_device in device_kinds:
                    checks.append(partial(self._check_direct, direct, *ends))
        every(checks)

    def _check_direct(self, direct: Converter, source: Backend, target: Backend) -> None:
        """Check a converter. It may raise an error or return `NotImplemented` for some arrays, but not for all."""
        method = "to_numpy" if source.name == self.tested.name else "from_numpy"
        groups, outcomes = list(self._groups_of(source, method)), list[Any]()

        def check(way: str, copy: bool | None) -> None:
            function = _function(direct, way, Options(copy=copy))
            if function is not None:
                label, attempt = f"{way}() of {direct!r}", partial(_attempt, function, outcomes)
                shares = False if copy else None
                call = Call(label, attempt, source, target, shares, f"copy={copy}", declines=True)
                layout_groups = [*groups[:4], *(group[-1:] for group in groups[4:])]
                for group in _mixed(groups) if way == "bind_many" else layout_groups:
                    self.run(call, *(each for each in group if direct.takes(type(each.x))))
                if copy or never_changes(source) or never_changes(target):
                    memory_arguments = self._memory(method, (65_536, LARGE))
                    for argument in self._in_library(source, memory_arguments):
                        self.run(call, argument, writes=True)

        every(partial(check, way, copy) for copy in (None, True) for way in ("convert", *_MADE))
        if True not in outcomes:
            error = next((x for x in outcomes if isinstance(x, Exception)), None)
            outcome = f"raised {describe_error(error)}" if error else "returned NotImplemented"
            label = f"{direct!r}, for every ordinary array of dtype {self._usual().name} on the CPU"
            raise AssertionError(f"{label}: {outcome} instead of an array") from error

    def _groups_of(self, source: Backend, method: str) -> Iterator[list[Given]]:
        """Yield lists of arrays of the source library, of all its dtypes, in many layouts. A list has one shape."""
        usual_dtype = self._usual()
        dtypes = dtypes_of(source.dtypes())
        dtypes.sort(key=lambda dtype: (dtype != usual_dtype, dtype.kind not in "biuf"))
        for dtype_index, dtype in enumerate(dtypes):
            groups = self._samples(method, dtype)
            for group in islice(groups, 4 if dtype_index else None):
                yield list(self._in_library(source, group if dtype_index < 4 else group[:1]))
        for layout_name, x in odd_layouts(usual_dtype) if source.name == "numpy" else ():
            values = np.array(x.astype(x.dtype.newbyteorder("=")))
            yield [Given(x, values, case_of(values, layout_name))]

    def _in_library(self, source: Backend, arrays: Iterable[Given]) -> Iterator[Given]:
        """Yield the arguments, after replacing each `x` that is a NumPy array by an array of the source library."""
        for argument in arrays:
            if isinstance(argument.x, np.ndarray):  # a repeated argument is already converted
                argument.x = source.from_numpy(argument.x)
            yield argument


def _mixed(groups: list[list[Given]]) -> list[list[Given]]:
    """Return two lists, each with arrays of many dtypes and shapes. Only the values differ between the lists."""
    long_groups = [group for group in groups if len(group) > 1]
    return [[group[index] for group in long_groups] for index in (1, 2)]


_MADE = ("bind", "inline", "bind_many")
"""The methods of a converter that return a function or None. `inline` returns an `Inline` instead of a function."""


def _function(direct: Converter, method: str, options: Options) -> Any:
    """Return a function that converts a list of arrays by a method of a converter.

    Return None if the converter does not override the method, or the method returns None.
    """
    if method == "convert":
        return one_by_one(lambda x: direct.convert(x, None, options.copy))
    if not overrides(direct, getattr(Converter, method)):
        return None
    function: Any = ask(getattr(direct, method), options, what=f"{method}() of {direct!r}")
    if function is not None and method != "bind_many":
        function = one_by_one(_written(function) if method == "inline" else function)
    return function


def _attempt(function: _Convert, outcomes: list[Any], xs: list[Any]) -> list[Any]:
    """Convert arrays. Append to `outcomes` the raised error, or for each array a bool: whether it was converted."""
    try:
        ys = list(function(xs))
    except Exception as error:
        outcomes.append(error)
        return [NotImplemented] * len(xs)
    outcomes += [y is not NotImplemented for y in ys]
    return ys


def _written(inline: Inline) -> Callable[[Any], Any]:
    """Return a function that converts an array by the expressions that `inline` returned."""
    names = {name: name for name in ("x", "y", *inline.names)}
    test_code, result_code = inline.test.format(**names) or "True", inline.result.format(**names)
    lambda_code = f"lambda x: ({result_code}) if ({test_code}) else NotImplemented"
    function: Callable[[Any], Any] = eval(lambda_code, dict(inline.names))
    return function
