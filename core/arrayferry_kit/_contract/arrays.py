"""The base class of the tests of a backend. It makes the arrays to try, of each dtype, shape and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from arrayferry import STANDARD_DTYPES, Backend, registry

from . import samples
from .calls import Call, Given, Runner, convert, library_of, one_by_one
from .checks import Values, difference, stated_difference

METHODS = ("to_numpy", "from_numpy", "copy")
"""The methods of a backend that return an array with the values of their argument."""


class BackendTests(Runner):
    """The base class of the tests of a backend. Authors override its public members. It makes the arrays to try."""

    backend: str | Backend = ""
    dtypes: tuple[str, ...] | None = None

    # Members that the author implements.

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an array of the library with these values, shape and dtype, without the plugin.

        The array must own its memory. Every subclass must implement this method.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must say how an array is made. Write make(self, values), which returns an array of "
            "the library with the values, shape and dtype of the NumPy array `values`, such as mylib.array(values)"
        )

    def unportable(self) -> list[tuple[Any, str]]:
        """Return arrays that cannot be converted, because they also contain masks, units or the like.

        Each array is in a tuple with a word that the text of the `ConversionError` must contain.
        """
        return []

    # The backend under test.

    @property
    def tested(self) -> Backend:
        """The backend under test."""
        if isinstance(self.backend, Backend):
            return self.backend
        if not self.backend:
            raise NotImplementedError(
                f'{type(self).__name__} must name the backend under test, such as backend = "mylib"'
            )
        return registry.backend(self.backend)

    def _call(self, method: str, copy: bool | str | None = "stated") -> Call:
        """Return a call of one of `METHODS` if `copy` is "stated".

        Otherwise, return a call of `convert` with this option `copy`, which uses the method.
        """
        tested, numpy = self.tested, registry.backend("numpy")
        ends = {
            "from_numpy": (numpy, tested),
            "to_numpy": (tested, numpy),
            "copy": (tested, tested),
        }
        source, target = ends[method]
        shares = getattr(tested, f"{method}_shares", False)
        promise = f"{method}_shares is {shares}" if method != "copy" else "a copy"
        if copy == "stated":
            device_args = [None] if method == "from_numpy" else []
            function = one_by_one(lambda x: getattr(tested, method)(x, *device_args))
            return Call(f"{method}()", function, source, target, shares, promise, method)
        function = one_by_one(partial(convert, to=target, copy=copy))
        name, shares = f"{method}() by convert(copy={copy})", None if copy is None else not copy
        return Call(name, function, source, target, shares, promise)

    # Dtypes of the library.

    def _supported(self) -> Iterable[str] | None:
        dtype_names: Iterable[str] | None = self.ask("dtypes")
        return dtype_names

    def _dtypes(self, method: str = "to_numpy") -> list[np.dtype[Any]]:
        """Return the dtypes to try with a method.

        If the library has all dtypes of NumPy, omit nonstandard dtypes that the author's `make` does not support,
        except for `from_numpy`, which is tried with NumPy arrays.
        """
        supported_names = self._supported() if self.dtypes is None else self.dtypes
        dtypes = samples.dtypes_of(supported_names)
        if supported_names is None and method != "from_numpy":
            dtypes = [d for d in dtypes if d.name in STANDARD_DTYPES or self._makes(d)]
        return dtypes

    def _makes(self, dtype: np.dtype[Any]) -> bool:
        values = samples.sample(dtype, (5,))
        return self._array_in_layout(lambda x: x, values, values, viewed=True) is not None

    def _has(self, dtype: str) -> bool:
        """Return whether the library has a dtype."""
        supported_names = self._supported()
        return supported_names is None or dtype in supported_names

    # Arrays of the library.

    def _samples(self, method: str, dtype: np.dtype[Any]) -> Iterator[list[Given]]:
        """Yield lists of arrays of a dtype, together in all shapes and layouts. The arrays of a list have one shape."""
        is_usual = dtype == self._usual()
        yield [self._given(samples.special(dtype), "with special values", method=method)]
        cube_shapes = (samples.CUBE, samples.HYPER) if is_usual else (samples.CUBE,)
        few_shapes: tuple[samples.Shape, ...] = ((), (5,), (2, 3))
        for shape in (*samples.SHAPES, samples.HYPER) if dtype.kind in "?biufc" else few_shapes:
            arrays = enumerate(samples.sample(dtype, shape, shift) for shift in (0, 1))
            arguments = [self._given(x, f"number {n + 1} of 2", method=method) for n, x in arrays]
            yield [arguments[0], *arguments]
        # lazy arrays are slow to compute, and have no memory layout until they are computed
        for shape in cube_shapes if is_usual or self.tested.memory != "lazy" else ():
            most = None if is_usual and shape == samples.CUBE else 6
            layouts = self._in_layouts(samples.sample(dtype, shape), method, most=most)
            yield from ([argument] for argument in layouts)
            yield from ([argument] for argument in self._broadcast(dtype, shape, method))

    def _memory(self, method: str, sizes: Sequence[int] = samples.SIZES) -> Iterator[Given]:
        """Yield writable arrays of many layouts and sizes. They are NumPy arrays if `method` is "from_numpy"."""
        yield from self._in_layouts(samples.numbers(self._usual(), samples.CUBE), method)
        for size in sizes:
            for is_aligned in (True,) if size == samples.LARGE else (True, False):
                values = samples.numbers(self._usual(), (size,), is_aligned)
                case = f"of {values.nbytes:,} bytes, {'' if is_aligned else 'not '}aligned to 64"
                x = values if method == "from_numpy" else self.make(values)
                yield Given(x, values.copy(), samples.case_of(values, case))

    def _in_layouts(
        self, values: Values, method: str = "to_numpy", *, most: int | None = None
    ) -> Iterator[Given]:
        """Yield arrays with these values in different memory layouts. `most` is the maximum number of layouts."""
        if method == "from_numpy":
            for layout_name, array in islice(samples.in_layouts(values), most):
                yield Given(array, values, samples.case_of(values, layout_name))
            return
        most = 2 if self.tested.memory == "lazy" else most
        for layout_name, base, view_of in islice(samples.views(values), most):
            for is_view in (False,) if most else (True, False):
                x = self._array_in_layout(view_of, base, values, viewed=is_view)
                made_by = "as the library returns it" if is_view else "made by from_numpy()"
                if x is not None:
                    yield Given(x, values, samples.case_of(values, layout_name, made_by))

    def _broadcast(
        self, dtype: np.dtype[Any], shape: samples.Shape, method: str
    ) -> Iterator[Given]:
        """Yield arrays that repeat one row along the first axis, by a stride of 0."""
        row = samples.sample(dtype, (1, *shape[1:]))
        values, view_of = np.repeat(row, shape[0], axis=0), partial(samples.broadcast, shape=shape)
        for is_view in (False,) if method == "from_numpy" else (False, True):
            is_numpy = method == "from_numpy"
            x = (
                view_of(row)
                if is_numpy
                else self._array_in_layout(view_of, row, values, viewed=is_view)
            )
            if x is not None:
                yield Given(x, values, samples.case_of(values, "broadcast, with a stride of 0"))

    def _array_in_layout(
        self, view: Callable[[Any], Any], whole: Values, values: Values, *, viewed: bool
    ) -> Any:
        """Return an array of the library in a memory layout, or None if the library cannot make the array correctly.

        If `viewed`, the array is a view of an array from `make`. Otherwise, `from_numpy` makes it from a NumPy view.
        """
        try:
            if not viewed and min(view(whole).strides, default=0) < 0:
                return None
            x = view(self.make(whole.copy())) if viewed else self.tested.from_numpy(view(whole))
            is_wrong = library_of(x) != self.tested.name or stated_difference(x, values)
            overrides_read = type(self).read is not Runner.read
            return None if is_wrong or (overrides_read and difference(self.read(x), values)) else x
        except Exception:
            return None
