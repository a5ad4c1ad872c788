"""Tests of direct converters: called for one array or for many, and written into code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from arrayferry._errors import ConversionError, describe_error
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import overrides
from arrayferry._plugin.converter import Converter, Inline
from arrayferry._registry.registry import default_registry
from arrayferry._route.memory import never_changes
from arrayferry._route.narrowing import fit_dtype

from .base import Given, library_of
from .checks import Values, lacking, same
from .classes import describe_value
from .memory import Promise, PromiseTests
from .samples import (
    CUBE,
    LARGE,
    SHAPES,
    array_of,
    dtypes_of,
    in_layouts,
    layouts,
    numbers,
    sample,
    special,
)

_EQUAL = "Return the values, the shape and the dtype of the array, or NotImplemented."
_FIX_MEMORY = {
    True: "It ignores copy=True. Copy if copy is True, or return NotImplemented.",
    None: "It shares memory that must never change. Copy unless copy is False, or return NotImplemented.",
}


_Convert = Callable[[list[Any]], Iterable[Any]]


class DirectTests(PromiseTests):
    """The tests of direct converters."""

    def test_direct_converters_match_the_general_path(self) -> None:
        """Direct converters return equal arrays, one or many at once, in any layout, with and without `copy=True`."""
        mine = self._backend
        known = default_registry().backends()
        missing = []
        for direct in default_registry().catalog.converters:
            ends = (direct.source, direct.target)
            if mine.name not in ends or not all(n in known and known[n].usable for n in ends):
                continue
            source, target = known[direct.source], known[direct.target]
            kinds = {str(name).partition(":")[0] for name in target.devices()}
            if direct.source_device == "cpu" and direct.target_device in kinds:
                reason = _Check(self, direct, source, target).run()
                missing += [f"{direct!r} ({reason})"] if reason else []
        if missing:
            pytest.skip(f"not tested: {', '.join(missing)}")


@dataclass
class _Check:
    """The check of one converter.

    Attributes:
        test: the test, which makes, reads and writes arrays.
        direct: the converter.
        source: its source.
        target: its target.
        problem: why it has converted no array, "" once it has converted one.
        lacks: the error for which a device or a compiler is missing here, "" if none is.
    """

    test: DirectTests
    direct: Converter
    source: Backend
    target: Backend
    problem: str = "returned NotImplemented"
    lacks: str = ""

    @functools.cached_property
    def usual(self) -> np.dtype[Any]:
        return self.test._usual()

    def run(self) -> str:
        """Check it. Return the error if it converts nothing because a device or a compiler is missing here."""
        for copy in (None, True):
            methods = dict(self._methods(Options(copy=copy)))
            for name, convert in methods.items():
                what = f"{name}() of {self.direct!r}, copy={copy}"
                shares = False if copy else None
                promise = Promise(what, self.source, self.target, _FIX_MEMORY[copy], shares)
                # convert() is then called for few arrays only
                all_cases = name != "convert" or "bind" not in methods
                for given, writes in self._cases(copy, all_cases, many=name == "bind_many"):
                    self._try(promise, convert, given, writes)
        assert not self.problem or self.lacks, (
            f"{self.direct!r} {self.problem} for every ordinary array, so it is never used. Handle arrays of dtype "
            f"{self.usual.name} on the CPU in its convert()"
        )
        return self.problem and self.lacks

    def _try(self, promise: Promise, convert: _Convert, given: list[Given], writes: bool) -> None:
        """Convert arrays and check the results. If the converter raises, the general path takes over."""
        given = [each for each in given if self.direct.takes(type(each.x))]
        try:
            results = list(convert([each.x for each in given]))
        except Exception as error:
            self.problem = self.problem and f"raised {describe_error(error)}"
            self.lacks = self.lacks or lacking(error)
            return
        assert len(results) == len(given), (
            f"{promise.what}, returned {len(results)} for {len(given)} arrays. Return one for each"
        )
        for each, y in zip(given, results, strict=True):
            if y is not NotImplemented:
                self.problem = ""
                self._check(f"{promise.what}, {each.case}", each, y)
                if writes:
                    self.test._check_writes(promise, each, y)

    def _check(self, what: str, given: Given, y: Any) -> None:
        """Check the library and the values of a result."""
        library = library_of(y)
        assert library == self.target.name, (
            f"{what}, returned {describe_value(y)}, an array of {library}. Return one of {self.target.name}, or NotImplemented"
        )
        try:
            expected = fit_dtype(given.values, self.target, "checked")
        except ConversionError as error:
            raise AssertionError(
                f"{what}, returned an array, although {error.reason}. Return NotImplemented"
            ) from error
        same(self.test._values_of(self.target, y), expected, what, _EQUAL)

    # How it is called.

    def _methods(self, options: Options) -> Iterator[tuple[str, _Convert]]:
        """Yield the names of the methods by which a converter is used, and functions that convert by them."""
        direct = self.direct
        yield "convert", lambda xs: [direct.convert(x, None, options.copy) for x in xs]
        one, inline = self._bound("bind", options), self._bound("inline", options)
        if one is not None and overrides(direct, Converter.bind):
            yield "bind", lambda xs: list(map(one, xs))
        if inline is not None:
            written = _written(inline)
            yield "inline", lambda xs: list(map(written, xs))
        many = self._bound("bind_many", options)
        if many is not None:
            yield "bind_many", many

    def _bound(self, method: str, options: Options) -> Any:
        try:
            return getattr(self.direct, method)(options)
        except Exception as error:
            self.lacks = self.lacks or lacking(error)
            if self.lacks:
                return None
            raise AssertionError(
                f"{method}() of {self.direct!r} raised {describe_error(error)}. Return None from it for options that it "
                "does not support"
            ) from error

    # Its arguments.

    def _cases(
        self, copy: bool | None, all_cases: bool, *, many: bool
    ) -> Iterator[tuple[list[Given], bool]]:
        """Yield the arrays of each call of a method, and whether they and the results are written to."""
        for size in (3, 1024, 64 * 1024):
            pair = [self._numbers(size), self._numbers(size // 2 + 1)]
            yield from [(pair, False)] * 3  # later calls may differ
            yield pair, True
        if copy is None:
            for shift in range(3):
                values = sample(self.usual, (2, 3), shift)
                one = [self._given(values, "and shape (2, 3)")]
                yield self._many(shift) if many else one, False
            for given in () if many else self._samples:
                if all_cases or given.values.dtype == self.usual:
                    yield [given], False
        if copy or never_changes(self.source) or never_changes(self.target):
            for given in (*self._in_layouts(), *(self._large() if all_cases else ())):
                yield [given], True

    def _given(self, values: Values, case: str) -> Given:
        """Return an array of the source with these values, in memory of its own."""
        own = self.source.name == self.test._backend.name and values.size < 1000
        x = self.test.make(values.copy()) if own else self.source.from_numpy(values.copy())
        return Given(x, values, f"for an array of dtype {values.dtype.name} {case}")

    def _numbers(self, size: int) -> Given:
        return self._given(numbers(self.usual, (size,)), f"and shape ({size},)")

    @functools.cached_property
    def _samples(self) -> list[Given]:
        """Arrays of all dtypes and shapes, and for NumPy of all layouts."""
        samples = []
        for dtype in dtypes_of(self.source.dtypes()):
            for shape in (*SHAPES, CUBE) if dtype == self.usual else ((), (2, 3), CUBE):
                samples.append(self._given(sample(dtype, shape), f"and shape {shape}"))
            samples.append(self._given(special(dtype), "with special values"))
        for name, laid in layouts(self.usual) if self.source.name == "numpy" else ():
            values = np.array(laid.astype(laid.dtype.newbyteorder("=")))
            samples.append(Given(laid, values, f"for an array {name}"))
        return samples

    def _many(self, shift: int) -> list[Given]:
        """Return many arrays of different dtypes, shapes and sizes; the same ones again have other values."""
        known = dtypes_of(self.source.dtypes())
        dtypes = [self.usual, *(d for d in known if d.kind in "biuf")][:4]
        cases = [(d, s) for d in dtypes for s in ((), (5,), (2, 3), CUBE, (0,))]
        return [self._given(sample(d, s, shift), f"and shape {s}") for d, s in cases]

    def _in_layouts(self) -> Iterator[Given]:
        """Yield arrays of the source in different memory layouts."""
        values = numbers(self.usual, CUBE)
        if self.source.name == self.test._backend.name:
            yield from self.test._in_layouts(values, more=True)
        elif self.source.name == "numpy" or self.source.from_numpy_shares:
            for name, laid in in_layouts(values, more=True):
                yield Given(self.source.from_numpy(laid), values, array_of(values, name))

    def _large(self) -> Iterator[Given]:
        """Yield one large array, which may be shared where small ones are copied."""
        values = numbers(self.usual, (LARGE // self.usual.itemsize,))
        try:
            x = self.source.from_numpy(values.copy())
        except Exception:  # another test reports it
            return
        yield Given(x, values, f"for an array of {LARGE // 2**20} MiB")


def _written(inline: Inline) -> Callable[[Any], Any]:
    """Make a function of the expressions that a conversion writes into its code."""
    names = {name: name for name in ("x", "y", *inline.names)}
    test, result = inline.test.format(**names) or "True", inline.result.format(**names)
    function: Callable[[Any], Any] = eval(
        f"lambda x: ({result}) if ({test}) else NotImplemented", dict(inline.names)
    )
    return function
