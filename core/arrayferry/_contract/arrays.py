"""Arrays of the library under test, as the tests of the contract kit need them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice, permutations
from operator import getitem, methodcaller
from typing import Any

import numpy as np
import pytest

from arrayferry._dtypes import STANDARD_DTYPES

from .base import BackendTests, Given, library_of
from .checks import Values, difference, stated_difference
from .samples import (
    BACKWARDS,
    CUBE,
    EVERY_SECOND,
    HYPER,
    SHAPES,
    SIZES,
    array_of,
    axes_of,
    dtypes_of,
    in_layouts,
    numbers,
    sample,
    spread,
)

VALUE_METHODS = ("to_numpy", "from_numpy", "copy")
"""The methods that return an array of the same values."""
_USUAL = [
    "float32",
    "float64",
    "int32",
    "int64",
    "float16",
    "int16",
    "int8",
    "complex64",
    "complex128",
]


class ArrayTests(BackendTests):
    """Makes arrays of the backend under test."""

    def _dtypes(self, *, made: bool = True) -> list[np.dtype[Any]]:
        """Return the dtypes to try.

        Args:
            made: whether to leave out dtypes beyond the standard that the author's `make` does not support.
        """
        supported = self._ask("dtypes") if self.dtypes is None else self.dtypes
        dtypes = dtypes_of(supported)
        if supported is None and made:
            dtypes = [d for d in dtypes if d.name in STANDARD_DTYPES or self._makes(d)]
        return dtypes

    def _makes(self, dtype: np.dtype[Any]) -> bool:
        values = sample(dtype, (5,))
        return self._holds(_try(lambda: self.make(values)), values)

    def _has(self, dtype: str) -> bool:
        """Return whether the library has a dtype."""
        supported = self._ask("dtypes")
        return supported is None or dtype in supported

    def _usual(self) -> np.dtype[Any]:
        """Return the dtype to use where any would do: float32, if the library has it."""
        for name in _USUAL:
            if self._has(name):
                return np.dtype(name)
        pytest.skip(f"not tested: dtypes() has none of {', '.join(_USUAL)}, which this needs")

    def _given(self, method: str, values: Values, case: str, hint: str = "") -> Given:
        """Return an array with these values for one of `VALUE_METHODS`."""
        own = values.copy()
        return Given(own if method == "from_numpy" else self.make(own), values, case, hint)

    def _ordinary(self, method: str = "to_numpy") -> Given:
        return self._given(method, sample(self._usual(), (2, 3)), "for an ordinary array")

    def _samples(self, method: str, dtype: np.dtype[Any]) -> Iterator[Given]:
        """Yield arrays of a dtype in all shapes, one of them again and with other values."""
        for shape in SHAPES if dtype.kind in "?biufc" else ((), (5,), (2, 3)):
            case = f"for an array of dtype {dtype.name} and shape {shape}"
            given = self._given(method, sample(dtype, shape), case)
            yield from [given, given] if method == "to_numpy" and shape == (2, 3) else [given]
        for shift in (1, 2):
            case = f"for another array of dtype {dtype.name} and the same shape"
            yield self._given(method, sample(dtype, (2, 3), shift), case)

    def _layouts(self, dtype: np.dtype[Any]) -> list[tuple[Values, bool]]:
        """Return values of a dtype to try layouts with, and whether to try all layouts."""
        if dtype != self._usual():
            # lazy arrays take long, and have a layout only after they are computed
            lazy = self._backend.memory == "lazy"
            return [] if lazy else [(sample(dtype, CUBE), False)]
        return [(sample(dtype, CUBE), True), (sample(dtype, HYPER), False)]

    def _sizes(self, *, more: bool = True) -> Iterator[tuple[Values, str]]:
        """Yield NumPy memory of many sizes, and if asked for `more`, also with an odd address."""
        for size in SIZES:
            for aligned in (True, False) if more else (True,):
                memory = numbers(self._usual(), (size,), aligned)
                yield memory, f"{memory.nbytes} bytes, {'' if aligned else 'not '}aligned to 64"

    def _memory_cases(self, *, more: bool = True) -> Iterator[Given]:
        """Yield writable NumPy memory of many sizes and layouts."""
        laid = in_layouts(numbers(self._usual(), CUBE), more=more)
        layouts = ((x, f"an array of shape {CUBE} {name}") for name, x in laid)
        for memory, case in (*self._sizes(more=more), *layouts):
            yield Given(memory, memory.copy(), case)

    def _array_cases(self) -> Iterator[Given]:
        """Yield arrays of the library, of many sizes and layouts."""
        for values, case in self._sizes():
            yield Given(self.make(values), values.copy(), case)
        values = numbers(self._usual(), CUBE)
        yield from self._in_layouts(values, more=self._backend.memory != "lazy")

    def _in_layouts(self, values: Values, *, more: bool = False) -> Iterator[Given]:
        """Yield arrays of the library that have the same values, in different memory layouts.

        Args:
            values: the values.
            more: whether to yield more than two or three.
        """
        for make, name, by_plugin in self._layout_makers(values, more):
            x = _try(make)
            if self._holds(x, values):
                yield Given(x, values, array_of(values, name), by_plugin=by_plugin)

    def _layout_makers(self, values: Values, more: bool) -> Iterator[tuple[Any, str, bool]]:
        """Yield functions that make arrays, names for their layouts, and whether the plugin makes them."""
        few = 2 if self._backend.memory == "lazy" else None
        for name, laid in islice(in_layouts(values, more=more), few):
            if more and self._reads:
                yield partial(self.make, laid), name, False
            made = partial(self._backend.from_numpy, laid)
            yield made, f"{name}, made by from_numpy()", True
        for view, name in self._views(values) if more else ():
            yield view, f", as {name} of the library returns it", False

    def _views(self, values: Values) -> Iterator[tuple[Any, str]]:
        """Yield functions that let the library itself take parts and transposes of arrays."""
        for order in list(permutations(range(values.ndim)))[1:]:
            base = self.make(np.ascontiguousarray(values.transpose(order)))
            back = tuple(int(n) for n in np.argsort(order))
            for method in ("permute", "transpose"):
                yield partial(methodcaller(method, *back), base), f"{method}{back}"
        for part in (EVERY_SECOND, BACKWARDS):
            for axes in axes_of(values):
                around, cut = spread(values, axes, part)
                shown = [part.text if n in axes else ":" for n in range(values.ndim)]
                yield partial(getitem, self.make(around), cut), f"array[{', '.join(shown)}]"
        yield partial(getitem, self.make(np.stack([values, values])), 1), "array[1]"

    def _holds(self, array: Any, values: Values) -> bool:
        """Return whether an array is of the library and has these values, as seen without the plugin."""
        if array is None or library_of(array) != self._backend.name:
            return False
        if stated_difference(array, values):
            return False
        return not self._reads or _try(lambda: difference(self.read(array), values)) == ""


def _try(function: Any) -> Any:
    """Call a function, and return None if it fails."""
    try:
        return function()
    except Exception:
        return None
