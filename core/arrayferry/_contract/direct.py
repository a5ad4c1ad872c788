"""Tests of direct converters: called for one array or for many, and written into code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from arrayferry._dtypes import STANDARD_DTYPES, dtype_named
from arrayferry._errors import ConversionError, describe_error
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import overrides
from arrayferry._plugin.converter import Converter, Inline
from arrayferry._registry.registry import default_registry
from arrayferry._route.narrowing import fit_dtype

from .arrays import ArrayTests
from .base import library_of
from .lacking import lacking
from .same import describe_type, same
from .samples import BEYOND, CUBE, LARGE, SHAPES, laid_out, layouts, numbers, sample, special

__all__ = ["DirectTests"]

_EQUAL = "Return the values, the shape and the dtype of the array, or NotImplemented."
_Way = Callable[[list[Any]], Sequence[Any]]


class _Given(NamedTuple):
    """An array that a converter is given, its values, and a description for messages."""

    x: Any
    values: np.ndarray[Any, Any]
    case: str


class DirectTests(ArrayTests):
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
                told = _Check(self, direct, source, target).run()
                missing += [f"{direct!r} ({told})"] if told else []
        if missing:
            pytest.skip(f"not tested: {', '.join(missing)}")

    def _values_of(self, backend: Backend, array: Any) -> np.ndarray[Any, Any]:
        if backend.name == self._backend.name:
            return self.read(array)
        return np.array(backend.to_numpy(array))

    def _fill(self, backend: Backend, array: Any, value: float) -> bool:
        """Write a value into every element of an array of any backend. Tell whether it can be done."""
        if backend.memory != "writable":
            return False
        if isinstance(array, np.ndarray):
            if array.flags.writeable:
                array[...] = value
            return bool(array.flags.writeable)
        if backend.name == self._backend.name:
            self.write(array, value)
            return True
        view = backend.to_numpy(array)
        if not backend.to_numpy_shares or not view.flags.writeable:
            return False
        view[...] = value
        return True


class _Check:
    """The check of one converter.

    Args:
        test: what makes, reads and writes arrays.
        direct: the converter.
        source: its source.
        target: its target.
    """

    def __init__(
        self, test: DirectTests, direct: Converter, source: Backend, target: Backend
    ) -> None:
        self.test = test
        self.direct = direct
        self.source = source
        self.target = target
        self.usual = test._usual()
        self.handled = False
        self.problem = "returned NotImplemented"
        self.lacks = ""

    def run(self) -> str:
        """Check it. Return what the library lacks here, if it takes no array for that reason."""
        samples = [given for given in self._samples() if self.direct.takes(type(given.x))]
        constant = {self.source.memory, self.target.memory} & {"immutable", "lazy"}
        for copy in (None, True):
            ways = list(self._ways(Options(copy=copy)))
            large = "bind" if any(name == "bind" for name, _ in ways) else "convert"
            for name, way in ways:
                what = f"{name}() of {self.direct!r}, copy={copy}"
                for size in (3, 1024, 64 * 1024):
                    pair = [self._numbers(size), self._numbers(size // 2 + 1)]
                    for _ in range(3 if name == "bind_many" else 1):  # later calls may differ
                        self._convert(way, pair, what)
                    self._convert(way, pair, what, copy, writes=True)
                if copy is None and name == "bind_many":
                    for shift in range(3):
                        self._convert(way, self._many(shift), what)
                elif copy is None:
                    for shift in range(3):
                        values = sample(self.usual, (2, 3), shift)
                        self._convert(way, [self._given(values, "and shape (2, 3)")], what)
                    for given in samples:
                        if (
                            name != "convert"
                            or large == "convert"
                            or given.values.dtype == self.usual
                        ):
                            self._convert(way, [given], what)
                if copy or constant:
                    for given in self._in_layouts():
                        self._convert(way, [given], what, copy, writes=True)
                    if name == large or (copy and name != "convert"):
                        self._check_large(way, what, copy)
        if not self.handled and self.lacks:
            return self.lacks
        assert self.handled, (
            f"{self.direct!r} {self.problem} for every ordinary array, so it is never used. Handle arrays of dtype "
            f"{self.usual.name} on the CPU in its convert()"
        )
        return ""

    # What it is given.

    def _given(self, values: np.ndarray[Any, Any], case: str) -> _Given:
        """Return an array of the source with these values, in memory of its own."""
        own = self.source.name == self.test._backend.name and values.size < 1000
        x = self.test.make(values.copy()) if own else self.source.from_numpy(values.copy())
        return _Given(x, values, f"for an array of dtype {values.dtype.name} {case}")

    def _numbers(self, size: int) -> _Given:
        return self._given(numbers(self.usual, (size,)), f"and shape ({size},)")

    def _dtypes(self) -> list[np.dtype[Any]]:
        held = self.source.dtypes()
        names = [*sorted(STANDARD_DTYPES), *BEYOND] if held is None else sorted(held)
        return [dtype for dtype in map(dtype_named, names) if dtype is not None]

    def _samples(self) -> Iterator[_Given]:
        """Yield arrays of all dtypes and shapes, and for NumPy of all layouts."""
        for dtype in self._dtypes():
            for shape in (*SHAPES, CUBE) if dtype == self.usual else ((), (2, 3), CUBE):
                yield self._given(sample(dtype, shape), f"and shape {shape}")
            yield self._given(special(dtype), "with special values")
        if self.source.name == "numpy":
            for name, laid in layouts(self.usual):
                values = laid.astype(laid.dtype.newbyteorder("="))
                yield _Given(laid, np.array(values), f"for an array {name}")

    def _in_layouts(self) -> Iterator[_Given]:
        """Yield arrays of the source in different memory layouts."""
        values = numbers(self.usual, CUBE)
        if self.source.name == self.test._backend.name:
            for x, case, _ in self.test._lying(values, more=True):
                if self.test._holds(x, values) and self.direct.takes(type(x)):
                    yield _Given(x, values, case)
            return
        for name, laid in laid_out(values, more=True):
            case = f"for an array of dtype {self.usual.name} and shape {CUBE} {name}"
            if self.source.name == "numpy":
                yield _Given(laid, values, case)
            elif self.source.from_numpy_shares:
                yield _Given(self.source.from_numpy(laid), values, case)

    def _many(self, shift: int) -> list[_Given]:
        """Return many arrays of different dtypes, shapes and sizes; the same ones again have other values."""
        dtypes = [self.usual, *(d for d in self._dtypes() if d.kind in "biuf")][:4]
        cases = [(d, s) for d in dtypes for s in ((), (5,), (2, 3), CUBE, (0,))]
        return [self._given(sample(d, s, shift), f"and shape {s}") for d, s in cases]

    # How it is called.

    def _ways(self, options: Options) -> Iterator[tuple[str, _Way]]:
        """Yield the ways in which a converter is used, by the names of its methods."""
        direct = self.direct
        yield "convert", lambda xs: [direct.convert(x, None, options.copy) for x in xs]
        one = self._bound("bind", options)
        if one is not None and overrides(direct, Converter.bind):
            yield "bind", lambda xs: list(map(one, xs))
        inline = self._bound("inline", options)
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

    def _convert(
        self,
        way: _Way,
        given: list[_Given],
        what: str,
        copy: bool | None = None,
        writes: bool = False,
    ) -> None:
        """Convert arrays and check the results. If the converter raises, the general path takes over."""
        try:
            results = list(way([each.x for each in given]))
        except Exception as error:
            self.problem = f"raised {describe_error(error)}"
            self.lacks = self.lacks or lacking(error)
            return
        assert len(results) == len(given), (
            f"{what}, returned {len(results)} for {len(given)} arrays. Return one for each"
        )
        for each, y in zip(given, results, strict=True):
            if y is not NotImplemented:
                self.handled = True
                self._check(f"{what}, {each.case}", each, y)
                if writes:
                    self._check_memory(f"{what}, {each.case}", each, y, copy)

    # What it returns.

    def _check(self, what: str, given: _Given, y: Any) -> None:
        library = library_of(y)
        assert library == self.target.name, (
            f"{what}, returned a {describe_type(y)}, an array of {library}. Return one of {self.target.name}, or "
            "NotImplemented"
        )
        try:
            expected = fit_dtype(given.values, self.target, "checked")
        except ConversionError as error:
            raise AssertionError(
                f"{what}, returned an array, although {error.reason}. Return NotImplemented"
            ) from error
        same(self.test._values_of(self.target, y), expected, what, _EQUAL)

    def _check_memory(self, what: str, given: _Given, y: Any, copy: bool | None) -> None:
        """Check that a write to one array is not seen in the other where it must not be."""
        test, x, values = self.test, given.x, given.values
        ends = ((self.source, x, self.target, y), (self.target, y, self.source, x))
        for value, (writer, written, reader, read) in enumerate(ends, -2):
            readonly = isinstance(read, np.ndarray) and not read.flags.writeable
            constant = reader.memory in ("immutable", "lazy") or (
                readonly and reader is self.source
            )
            if not (copy or constant) or not test._fill(writer, written, value):
                continue
            who = "the source" if writer is self.source else "the result"
            if copy:
                told, fix = "ignores copy=True", "Copy if copy is True, or return NotImplemented."
            else:
                told = f"shares memory that must never change in {reader.name}"
                fix = "Copy unless copy is False, or return NotImplemented."
            current = test._values_of(reader, read)
            same(
                current, values, f"{what}, {told}: {who} was written to, and the other changed", fix
            )
            values = np.full_like(values, value)

    def _check_large(self, way: _Way, what: str, copy: bool | None) -> None:
        """Check one large array, which may be shared where small ones are copied."""
        try:
            values = numbers(self.usual, (LARGE // self.usual.itemsize,))
            x = self.source.from_numpy(values.copy())
        except Exception:  # another test reports it
            return
        given = _Given(x, values, f"for an array of {LARGE // 2**20} MiB")
        self._convert(way, [given], what, copy, writes=True)


def _written(inline: Inline) -> Callable[[Any], Any]:
    """Make a function of the expressions that a conversion writes into its code."""
    names = {name: name for name in ("x", "y", *inline.names)}
    test, result = inline.test.format(**names) or "True", inline.result.format(**names)
    function: Callable[[Any], Any] = eval(
        f"lambda x: ({result}) if ({test}) else NotImplemented", dict(inline.names)
    )
    return function
