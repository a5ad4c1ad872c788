"""The runner calls a method with an array, and checks the result.

A `Call` is a method of a plugin, or a conversion. A `Given` is an array of some dtype, shape and layout. A test
passes a `Call` and arrays to `Runner.run`, which calls the method and checks the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import arrayferry as af
from arrayferry import STANDARD_DTYPES
from arrayferry._utilities.text import describe_value
from arrayferry.extending import Origin, is_built_in, never_changes
from arrayferry.typing import AnyArray, AnyTree

from . import samples
from .alone import alone
from .checks import (
    DUTIES,
    Values,
    ask,
    check_kind,
    difference,
    equal,
    every,
    missing_types,
    same,
    skip_if_lacking,
    stated_difference,
)

UNKNOWN = "no known library"


@dataclass
class Given:
    """An array to pass to a call.

    Attributes:
        x: the array, of any library.
        values: the values of `x`, as a NumPy array.
        case: a description of `x` for messages.
    """

    x: Any
    values: Values
    case: str


class Call(NamedTuple):
    """A function that converts arrays, and what it must do with their memory.

    Attributes:
        name: the name of the call in messages.
        function: accepts a list of arrays, and returns a list of arrays with equal values.
        source: the library of the arguments, or None if they are not arrays.
        target: the library of the results, or None for any.
        shares: whether results must share memory with the arguments (True) or must not (False). None if both are right.
        promise: the attribute or option that determines `shares`, for messages.
        method: the method whose row of `DUTIES` describes each result, or "" for none.
        declines: whether the function may return `NotImplemented` in place of an array.
    """

    name: str
    function: Callable[[list[Any]], Any]
    source: Origin | None = None
    target: af.Backend | None = None
    shares: bool | None = None
    promise: str = ""
    method: str = ""
    declines: bool = False


def convert(value: AnyTree, *to: Any, **options: Any) -> Any:
    """Call `arrayferry.convert`. Sparse arrays become dense, and errors tell the author of the plugin what to do."""
    try:
        return af.convert(value, *to, sparse="dense", **options)
    except af.ConversionError as error:
        skip_if_lacking(error.__cause__)
        if isinstance(error, af.ContractError):
            error.remedy = error.duty  # `duty` is the remedy for authors of plugins
        raise


def library_of(array: AnyArray) -> str:
    """Return the name of the backend or source that recognises an array, or `UNKNOWN`."""
    kind = af.registry.kind(array)
    default = "numpy" if kind.category == "scalar" else UNKNOWN
    return str(getattr(kind.origin, "name", default))


class Runner:
    """The base class of all tests. It runs calls and checks their results."""

    others: tuple[str, ...] | None = None
    parts: Mapping[str, object] = MappingProxyType({})

    call: ClassVar[type[Call]] = Call
    given: ClassVar[type[Given]] = Given
    equal: ClassVar[staticmethod[..., None]] = staticmethod(equal)
    every: ClassVar[staticmethod[..., None]] = staticmethod(every)
    same: ClassVar[staticmethod[..., None]] = staticmethod(same)

    @property
    def tested(self) -> Any:
        """The backend or source under test."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _alone(self) -> Iterator[None]:
        with alone(lambda: self.tested, self.others or (), self.parts):
            yield

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an object of the library with these values."""
        raise NotImplementedError

    def read(self, array: AnyArray) -> np.ndarray[Any, Any]:
        """Copy the values of an array into a NumPy array, by default with `to_numpy` of the plugin."""
        return np.array(self.tested.to_numpy(array))

    def write(self, array: AnyArray, value: float) -> None:
        """Write a value to every element of an array, in place. It is not called if arrays are immutable."""
        try:
            array[...] = value
        except TypeError as error:
            raise AssertionError(
                f"arrays cannot be written to by array[...] = value ({error}). Define write(self, array, value) in the "
                "class of the tests, or set memory = 'immutable' in the backend if arrays never change"
            ) from error

    def _supported(self) -> Iterable[str] | None:
        """Return the names of the library's dtypes, or None for all dtypes of NumPy."""
        raise NotImplementedError

    def _usual(self) -> np.dtype[Any]:
        """Return a signed dtype of the library: float32 if it has this dtype. Skip the test if it has none."""
        dtypes = [d for d in samples.dtypes_of(self._supported()) if d.name in STANDARD_DTYPES]
        signed_dtypes = [d for d in dtypes if d.kind in "fic"]
        if not signed_dtypes:
            pytest.skip("not tested: this test needs a signed dtype, and dtypes() has none")
        return min(signed_dtypes, key=lambda d: (d.name != "float32", "fic".index(d.kind)))

    def _given(self, values: Values, *details: str, method: str = "to_numpy") -> Given:
        """Return a new array with these values: of NumPy if `method` is "from_numpy", else of the tested library."""
        owned_values = values.copy()
        try:
            x = owned_values if method == "from_numpy" else self.make(owned_values)
        except NotImplementedError:
            raise
        except Exception as error:
            error.add_note(f"If the library has no {owned_values.dtype}, leave it out of dtypes().")
            raise
        return Given(x, values, samples.case_of(values, *details))

    def _ordinary(self, method: str = "to_numpy") -> Given:
        return self._given(samples.sample(self._usual(), (2, 3)), method=method)

    def _others(self) -> list[af.Backend]:
        """Return the backends, other than the tested one, to convert to and from."""
        if self.others is None:
            other_backends = [b for b in af.registry.backends().values() if is_built_in(b)]
        else:
            other_backends = [af.registry.backend(name) for name in self.others]
        return [b for b in other_backends if b.name != self.tested.name and b.problem() is None]

    def part(self, hook: str) -> Any:
        """Return what a hook of the plugin returned for the tested backend or source, or None without a hook."""
        return af.registry.parts(hook).of(self.tested)

    def numbers(self, shape: tuple[int, ...]) -> Values:
        """Return a NumPy array of a signed dtype of the library. Its first 100 numbers all differ from each other."""
        return samples.numbers(self._usual(), shape)

    def ask(
        self,
        method: str,
        *args: Any,
        case: str = "",
        of: Any = None,
        duty: tuple[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        """Call a method of the plugin, and return the result. Assert that the result is what the method must return.

        Args:
            method: the name of the method, such as "dtypes" or "devices.names".
            *args: the arguments of the method.
            case: a description of the arguments, for messages.
            of: the object with the method, or None for the backend or source under test.
            duty: what the method must return: a text for messages, and types. None uses the row in `DUTIES`.
            **options: the keyword arguments of the method.
        """
        has_text = any(isinstance(x, str) for x in args)
        shown = [repr(x) if isinstance(x, (str, int)) else "x" for x in args] if has_text else ()
        label = f"{method}({', '.join(shown)}){case and f', for {case}'}"
        function = attrgetter(method)(self.tested if of is None else of)
        return ask(function, *args, what=label, duty=duty or DUTIES.get(method), **options)

    def run(self, call: Call, *arguments: Given, writes: bool = False) -> list[Any]:
        """Run a call with arrays. Check all results, and that the call did not change the arrays.

        Args:
            call: the call.
            *arguments: the arrays.
            writes: whether to write to each array and to its result, to check whether they share memory as promised.

        Returns:
            The results.
        """
        prefix, states = f"{call.name}, for ", [_fingerprint(argument.x) for argument in arguments]
        many_text = f"{len(arguments)} arrays" + "".join(
            f", first {argument.case}" for argument in arguments[:1]
        )
        label = prefix + (arguments[0].case if len(arguments) == 1 else many_text)
        ys: list[Any] = ask(lambda: list(call.function([each.x for each in arguments])), what=label)
        equal(len(ys), len(arguments), f"the number of results of {label}")
        for argument, y, state in zip(arguments, ys, states, strict=True):
            label = prefix + argument.case
            assert _fingerprint(argument.x) == state, f"{label}: its argument was changed"
            if state is None and call.source is not None:
                same(
                    self.values_of(call.source, argument.x),
                    argument.values,
                    f"{label}: its argument",
                )
            if y is not NotImplemented or not call.declines:
                self._check(call, argument, y, label)
                if writes:
                    self._check_memory(call, argument, y, label)
        return ys

    def _check(self, call: Call, argument: Given, y: AnyArray, what: str) -> None:
        """Assert that a result is an array of the target library, with the values of the argument.

        If the target library lacks the dtype of the values, the result must have a narrower dtype of this library.
        """
        values = argument.values
        check_kind(y, DUTIES.get(call.method), what)
        self.check_library(y, call.target, what)
        if call.target is not None:
            try:
                values = af.fit_dtype(values, call.target, "checked")
            except af.ConversionError as error:
                raise AssertionError(
                    f"{what}: returned an array instead of raising an error, although {error.reason}"
                ) from error
        mismatch = "" if isinstance(y, np.ndarray) else stated_difference(y, values)
        mismatch = mismatch or difference(self.values_of(call.target, y), values)
        assert not mismatch, f"{what}: {mismatch}"

    def check_library(self, array: AnyArray, target: Origin | None, what: str) -> None:
        """Assert that an array is recognised as an array of `target`, or of any library if `target` is None."""
        library_name = library_of(array)
        expected_name, types_text = "a known library", ""
        if target is not None:
            expected_name, types_text = target.name, f", whose array_types are {target.array_types}"
        assert library_name == expected_name or (target is None and library_name != UNKNOWN), (
            f"{what}: {describe_value(array)}, which is recognised as an array of {library_name} instead of {expected_name}{types_text}"
        )

    def values_of(self, origin: Origin | None, array: AnyArray) -> Values:
        """Return the values of an array as a NumPy array. `origin` is its library, or None if it is not known."""
        if isinstance(array, np.ndarray):
            return array
        if origin is None:
            return np.asarray(convert(array, "numpy"))
        if origin.name == self.tested.name:
            return self.read(array)
        return np.array(origin.to_numpy(array))

    # Tests of every backend and source.

    def test_array_types_exist(self) -> None:
        """`array_types` names types that the library has."""
        missing_names = missing_types(self.tested.array_types)
        assert not missing_names, f"array_types names {missing_names}, which does not exist"

    def test_its_arrays_are_recognised(self) -> None:
        """An array of the library is recognised by its type."""
        self.check_library(self._ordinary().x, self.tested, "make() of the test")

    # Tests of memory.

    def _check_memory(self, call: Call, argument: Given, y: AnyArray, what: str) -> None:
        """Write to the argument, and check whether the result changes as promised. Then write to the result.

        After the write to the result, check whether the argument changes as promised.
        """
        what = f"{what}, {call.promise}"
        if call.shares is False and isinstance(y, np.ndarray):
            assert y.flags.writeable, (
                f"{what}: returned a read-only array instead of a writable copy"
            )
        sides: list[tuple[Any, Any]] = [(call.source, argument.x), (call.target, y)]
        side_names, values = ("source", "result"), [argument.values] * 2
        for written_side, other_side in ((0, 1), (1, 0)):
            origin, array = sides[other_side]
            is_read_only = isinstance(array, np.ndarray) and not array.flags.writeable
            is_constant = never_changes(origin) or (is_read_only and other_side == 0)
            # a result that shares memory changes with the argument, even if the target library
            # has immutable arrays
            is_constant = is_constant and (other_side == 0 or call.shares is None)
            shares = False if is_constant else call.shares
            shared_before = shares and _share_memory(sides)
            number = float(np.real(values[0].flat[0])) - 2
            if shares is None or not self._fill(*sides[written_side], number, what):
                continue
            values[written_side] = np.broadcast_to(
                np.asarray(number, argument.values.dtype), argument.values.shape
            )
            if shared_before and not _share_memory(sides):
                continue  # the library copied the array before the write, so the other array is unchanged
            clause = ", which is constant," if is_constant and call.shares is not False else ""
            must_text = "must change too" if shares else "must not change"
            when_text = f"when the {side_names[written_side]} is written to"
            label = f"{what}: the {side_names[other_side]}{clause} {must_text} {when_text}"
            actual, expected = (
                self.values_of(*sides[other_side]),
                values[written_side if shares else other_side],
            )
            same(_sampled(actual), _sampled(expected), label)
        argument.values = values[0]

    def _fill(self, backend: Any, array: AnyArray, value: float, what: str) -> bool:
        """Write a value into every element of an array of any backend, if possible. Return whether this was done."""
        if backend.memory != "writable" or not isinstance(backend, af.Backend):
            return False
        if not isinstance(array, np.ndarray):
            if backend.name == self.tested.name:
                ask(self.write, array, value, what=f"{what}: write()")
                return True
            if not backend.to_numpy_shares:
                return False
            array = backend.to_numpy(array)
        if array.flags.writeable:
            array[...] = value
        return bool(array.flags.writeable)


def one_by_one(function: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a function that accepts a list of arrays, and calls `function` with each of them."""
    return lambda xs: [function(x) for x in xs]


def _fingerprint(x: AnyArray) -> Any:
    """Return the properties of a NumPy array that a method must not change, or None for arrays of other libraries."""
    if not isinstance(x, np.ndarray):
        return None
    return x.shape, x.strides, x.flags.writeable, _sampled(x).tobytes()


def _sampled(x: Values) -> Values:
    """Return the elements to compare: all of a small array, or about 4096 of a large one, which takes less time."""
    return x.ravel()[:: 1 + x.size // 2**12]


def _share_memory(sides: list[tuple[Any, Any]]) -> bool:
    return np.shares_memory(*(backend.to_numpy(array) for backend, array in sides))
