"""Tests of many arrays at once, of pairs of libraries, and of conversions as objects."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from arrayferry import _api
from arrayferry._agnostic import agnostic
from arrayferry._plugin.autodiff import Flat
from arrayferry._plugin.backend import Backend

from .arrays import ArrayTests
from .base import Given, as_numpy, convert, library_of
from .checks import Values, noting, same
from .samples import CUBE, SHAPES, numbers, sample

_FIX_AUTODIFF = "Change vjp() and call() of autodiff, or set autodiff to None."
_FIX_PAIR = "Change to_numpy(), from_numpy(), or the converters of the plugin for that pair"


class PairTests(ArrayTests):
    """The tests of pairs."""

    # Many arrays at once, pairs, pickling and warnings.

    def test_to_numpy_many_matches_to_numpy(self) -> None:
        """`to_numpy_many` returns what `to_numpy` returns for each array, for few and for many."""
        dtypes = [d for d in self._dtypes() if d.kind in "biufc"] or [self._usual()]
        few = [sample(self._usual(), shape) for shape in SHAPES]
        many = [sample(d, shape, 1) for d in dtypes[:6] for shape in (*SHAPES, CUBE)]
        again = [sample(values.dtype, values.shape, 2) for values in many]
        for expected in (few, few[:1], [], many, again):
            self._gives_all("to_numpy_many", [self.make(x) for x in expected], expected)

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exchanged by DLPack, if `dlpack_devices` says so."""
        if "cpu" not in self._backend.dlpack_devices:
            return
        values = sample(self._usual(), CUBE)
        for given in self._in_layouts(values, more=True):
            exported = self._ask("to_dlpack", given.x, case=given.case)
            strides = getattr(given.x, "strides", ())
            if not isinstance(strides, tuple) or min(strides, default=0) >= 0:
                case = f"what to_dlpack() returned, {given.case}"
                self._gives("from_dlpack", given._replace(x=exported, case=case))

    def test_dtypes_are_named(self) -> None:
        """Where arrays are exchanged by DLPack, `dtype_of` names their dtypes."""
        for dtype in self._dtypes() if self._backend.dlpack_devices else ():
            given = self._given("to_numpy", sample(dtype, (2, 3)), f"for dtype {dtype.name}")
            name = self._ask("dtype_of", given.x, case=given.case)
            assert name == dtype.name, (
                f"dtype_of() returned {name!r}, {given.case}. {self._fix('dtype_of')}"
            )

    def test_addresses(self) -> None:
        """`address` returns where the first element is."""
        for given in self._in_layouts(numbers(self._usual(), CUBE), more=True):
            address = self._ask("address", given.x, case=given.case)
            if address is not None and self._backend.to_numpy_shares:
                expected = self._backend.to_numpy(given.x).ctypes.data
                assert address == expected, (
                    f"address() returned {address}, but the values are at {expected}, {given.case}. {self._fix('address')}"
                )

    def test_pairs_with_all_others(self) -> None:
        """Arrays in a tree are converted to every other backend and back, with equal values."""
        values = sample(self._usual(), CUBE)
        fortran = Given(np.array(values, order="F"), values, "in Fortran order")
        array = self._call("from_numpy", fortran)
        for other in self._others():
            there = convert({"x": [array, "text", self.make(values)]}, other)
            found = [library_of(there["x"][0]), there["x"][1]]
            assert found == [other.name, "text"], (
                f"an array and a text to {other.name} became one of {found[0]} and {found[1]!r}. {_FIX_PAIR}"
            )
            back = convert(there, self._backend)
            for each in (back["x"][0], back["x"][2]):
                self._recognised(each, f"the conversion from {other.name}")
                same(self.read(each), values, f"to {other.name} and back", _FIX_PAIR)

    def test_gradients_cross(self) -> None:
        """Gradients cross to and from every other library that has them, and so do second derivatives."""
        mine = self._backend
        if mine.autodiff is None or not self._has("float32"):
            return
        missing: list[str] = []
        others = [other for other in self._others() if other.autodiff is not None]
        for other in others:
            for inner, outer in ((mine, other), (other, mine)):
                with noting(missing, f"{outer.name} through {inner.name}"):
                    self._check_gradients(inner, outer)
        if missing:
            pytest.skip(f"not tested: gradients of {', '.join(missing)}")

    def _check_gradients(self, inner: Backend, outer: Backend) -> None:
        """Check gradients of a library through a function of another one."""

        def check(actual: Any, expected: Values, what: str) -> None:
            where = f"the {what} of {outer.name} through {inner.name}"
            same(as_numpy(actual), expected, where, _FIX_AUTODIFF)

        values = np.array([0.5, -1.0, 2.0], np.float32)
        cube = agnostic(inner, differentiable=True)(lambda x: x * x * x)
        x = self.make(values) if outer is self._backend else convert(values, outer)
        ones = convert(np.ones(3, np.float32), outer)
        autodiff = outer.autodiff
        assert autodiff is not None

        def function(xs: list[Any]) -> Flat:
            return Flat([cube(xs[0])])

        result, pullback = autodiff.vjp(function, (0,), compiled=False)([x])
        check(result.arrays[0], values**3, "value")
        for _ in range(2):
            check(pullback([ones])[0], 3 * values**2, "gradient")
        gradient = autodiff.gradient(function, 1, (0,))
        _, pullback = autodiff.vjp(gradient, (0,), compiled=False)([x, ones])
        check(pullback([ones])[0], 6 * values, "second derivative")

    def test_conversions_can_be_pickled(self) -> None:
        """A conversion to the backend works after pickling."""
        if isinstance(self.backend, Backend):
            return
        values = sample(self._usual(), (2,))
        again = pickle.loads(pickle.dumps(_api.converter(self._backend, sparse="dense")))
        what = "a converter, after pickling"
        same(self.read(again(values)), values, what, self._fix("from_numpy"))

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        given = self._ordinary()
        for method, value, to in (
            ("to_numpy", given.x, "numpy"),
            ("from_numpy", given.values, self._backend),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                convert(value, to)
            assert not caught, (
                f"a conversion warned: {caught[0].category.__name__}: {caught[0].message}. Change {method}() so that an "
                "ordinary array gives no warning"
            )
