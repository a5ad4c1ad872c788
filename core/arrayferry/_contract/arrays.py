"""Arrays of the library under test, as the tests of the contract kit need them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from arrayferry._dtypes import STANDARD_DTYPES, dtype_named

from .base import OWED, BackendTests, library_of
from .same import same
from .samples import BEYOND, CUBE, HYPER, SHAPES, SIZES, laid_out, numbers, sample

__all__ = ["ArrayTests"]

_USUAL = (
    "float32",
    "float64",
    "int32",
    "int64",
    "float16",
    "int16",
    "int8",
    "complex64",
    "complex128",
)


class ArrayTests(BackendTests):
    """Makes arrays of the backend under test."""

    def _dtypes(self, *, made: bool = True) -> list[np.dtype[Any]]:
        """Return the dtypes to try.

        Args:
            made: whether to leave out dtypes beyond the standard that the author's `make` does not support.
        """
        supported = self._backend.dtypes() if self.dtypes is None else self.dtypes
        names = sorted(STANDARD_DTYPES if supported is None else supported)
        dtypes = [dtype for dtype in map(dtype_named, names) if dtype is not None]
        beyond = [np.dtype(name) for name in BEYOND] if supported is None else []
        return dtypes + [dtype for dtype in beyond if not made or self._makes(dtype)]

    def _makes(self, dtype: np.dtype[Any]) -> bool:
        values = sample(dtype, (5,))
        array = _try(lambda: self.make(values))
        return array is not None and self._holds(array, values)

    def _usual(self) -> np.dtype[Any]:
        """Return the dtype to use where any would do: float32, if the library has it."""
        supported = self._backend.dtypes()
        for name in _USUAL:
            if supported is None or name in supported:
                return np.dtype(name)
        pytest.skip(f"not tested: dtypes() has none of {', '.join(_USUAL)}, which this needs")

    def _samples(self, dtype: np.dtype[Any]) -> Iterator[tuple[np.ndarray[Any, Any], str]]:
        """Yield values of a dtype in all shapes, three times in one of them, with descriptions for messages."""
        for shape in SHAPES if dtype.kind in "?biufc" else ((), (5,), (2, 3)):
            yield (
                sample(dtype, shape),
                f"for an array of dtype {dtype.name} and shape {shape}",
            )
        for shift in (1, 2):
            case = f"for another array of dtype {dtype.name} and the same shape"
            yield sample(dtype, (2, 3), shift), case

    def _layouts(self, dtype: np.dtype[Any]) -> list[tuple[np.ndarray[Any, Any], bool]]:
        """Return values of a dtype to try layouts with, and whether to try all layouts."""
        if dtype != self._usual():
            # lazy arrays take long, and only what they are computed to has a layout
            lazy = self._backend.memory == "lazy"
            return [] if lazy else [(sample(dtype, CUBE), False)]
        return [(sample(dtype, CUBE), True), (sample(dtype, HYPER), False)]

    def _numbers(self, size: int, aligned: bool = True) -> np.ndarray[Any, Any]:
        return numbers(self._usual(), (size,), aligned)

    def _memory_cases(self) -> Iterator[tuple[np.ndarray[Any, Any], str]]:
        """Yield writable NumPy memory of many sizes and layouts, with descriptions for messages."""
        for size in SIZES:
            for aligned in (True, False):
                count = size * self._usual().itemsize
                case = f"{count} bytes, {'' if aligned else 'not '}aligned to 64"
                yield self._numbers(size, aligned), case
        for name, laid in laid_out(numbers(self._usual(), CUBE), more=True):
            yield laid, f"an array of shape {CUBE} {name}"

    def _array_cases(self) -> Iterator[tuple[Any, np.ndarray[Any, Any], str]]:
        """Yield arrays of the library, of many sizes and layouts, with their values and descriptions for messages."""
        for size in SIZES:
            for aligned in (True, False):
                values = self._numbers(size, aligned)
                case = f"{values.nbytes} bytes, {'' if aligned else 'not '}aligned to 64"
                yield self.make(values), values.copy(), case
        values = numbers(self._usual(), CUBE)
        for array, case, _ in self._lying(values, more=self._backend.memory != "lazy"):
            if self._holds(array, values):
                yield array, values, case

    def _lying(
        self, values: np.ndarray[Any, Any], *, more: bool = False
    ) -> Iterator[tuple[Any, str, str]]:
        """Yield arrays of the library that should have the same values, in different memory layouts.

        Args:
            values: the values.
            more: whether to yield more than two or three.

        Yields:
            An array, a description for messages, and what to change if `to_numpy` returns other values.
        """
        head = f"for an array of dtype {values.dtype.name} and shape {values.shape}"
        ways = list(laid_out(values, more=more))
        if self._backend.memory == "lazy":
            ways = ways[:2]
        for name, laid in ways:
            made = _try(lambda laid=laid: self.make(laid)) if more and self._reads else None
            if made is not None:
                yield made, f"{head} {name}", OWED["to_numpy"]
            made = _try(lambda laid=laid: self._backend.from_numpy(laid))
            if made is not None and library_of(made) == self._backend.name:
                yield made, f"{head} {name}, made by from_numpy()", self._fix("to_numpy")
        if more:
            for view, name in self._views(values):
                yield view, f"{head}, {name}", OWED["to_numpy"]

    def _same(
        self, actual: Any, array: Any, values: np.ndarray[Any, Any], what: str, fix: str
    ) -> None:
        """Assert that what a method returned for an array has its values, unless the array itself has others."""
        try:
            same(actual, values, what, fix)
        except AssertionError:
            if self._holds(array, values):
                raise

    def _views(self, values: np.ndarray[Any, Any]) -> Iterator[tuple[Any, str]]:
        """Yield arrays with these values that the library itself has sliced or transposed, as far as it can."""
        turns = [
            (order, method)
            for order in list(permutations(range(values.ndim)))[1:]
            for method in ("permute", "transpose")
        ]
        for order, method in turns:
            base = self.make(np.ascontiguousarray(values.transpose(order)))
            back = tuple(int(n) for n in np.argsort(order))
            view = _try(lambda base=base, method=method, back=back: getattr(base, method)(*back))
            if self._is_view(view, values):
                yield view, f"as {method}{back} of the library returns it"
        steps: tuple[Any, ...] = (slice(1, None, 2), slice(None, None, -1))
        for step in steps:
            for axes in (*((n,) for n in range(values.ndim)), tuple(range(values.ndim))):
                cut = tuple(step if n in axes else slice(None) for n in range(values.ndim))
                shape = [2 * n + 1 if i in axes else n for i, n in enumerate(values.shape)]
                around = np.zeros(shape if step.step == 2 else values.shape, values.dtype)
                around[cut] = values
                base = self.make(around)
                view = _try(lambda base=base, cut=cut: base[cut])
                if self._is_view(view, values):
                    shown = ", ".join(
                        "1::2" if s.step == 2 else "::-1" if s.step else ":" for s in cut
                    )
                    yield view, f"as array[{shown}] of the library returns it"
        view = _try(lambda: self.make(np.stack([values, values]))[1])
        if self._is_view(view, values):
            yield view, "as array[1] of the library returns it"

    def _is_view(self, view: Any, values: np.ndarray[Any, Any]) -> bool:
        if view is None or library_of(view) != self._backend.name:
            return False
        shape = _try(lambda: tuple(view.shape))
        return bool(shape == values.shape)

    @property
    def _reads(self) -> bool:
        """Whether values are read without the plugin."""
        return type(self).read is not BackendTests.read

    def _fix(self, method: str) -> str:
        """Return what to change if an array that `from_numpy` made is read with other values."""
        if self._reads:
            return OWED[method]
        return (
            f"Either to_numpy() or from_numpy() is wrong. {OWED['to_numpy']} {OWED['from_numpy']}"
        )

    def _holds(self, array: Any, values: np.ndarray[Any, Any]) -> bool:
        """Tell whether an array has these values, as far as that can be seen without the plugin."""
        if not self._reads:
            return True
        try:
            same(self.read(array), values, "")
        except Exception:
            return False
        return True


def _try(function: Any) -> Any:
    """Call a function, and return None if it fails."""
    try:
        return function()
    except Exception:
        return None
