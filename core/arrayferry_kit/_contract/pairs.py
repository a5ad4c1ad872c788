"""Tests of many arrays at once, of exchanges by DLPack, of pairs of libraries, and of conversions as objects."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from arrayferry import Backend, Flat
from arrayferry._plugin.call import overrides
from arrayferry._route.exchange import runs_backwards
from arrayferry_functions import agnostic

from .arrays import BackendTests
from .calls import Call, Given, convert, one_by_one
from .checks import equal, every, same
from .samples import CUBE, SHAPES, numbers, sample


class PairTests(BackendTests):
    """The tests of many arrays, and of pairs of libraries."""

    @pytest.mark.parametrize("method", ["to_numpy_many", "compute"])
    def test_many_at_once(self, method: str) -> None:
        """A method for many arrays returns the values of each, in order. Those of `compute` have their own memory."""
        mine = self.tested
        call = Call(f"{method}()", getattr(mine, method), mine, None)
        dtypes = [d for d in self._dtypes() if d.kind in "biufc"] or [self._usual()]
        few = [sample(self._usual(), shape) for shape in SHAPES]
        many = [sample(d, shape, 1) for d in dtypes[:6] for shape in (*SHAPES, CUBE)]
        again = [sample(values.dtype, values.shape, 2) for values in many]
        for values in (few, few[:1], [], many, again):
            given = [self._given(x) for x in values]
            ys = self.run(call, *given)
            if method == "compute" and overrides(mine, Backend.compute):
                for y in (y for y in ys if isinstance(y, np.ndarray)):
                    assert y.flags.writeable, (
                        "compute(): a read-only array instead of a writable one"
                    )
                    y[...] = np.zeros((), y.dtype)
                self.run(call._replace(name="compute(), after its results were written to"), *given)

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exchanged by DLPack, if `dlpack_devices` says so."""
        mine = self.tested
        function = one_by_one(lambda x: mine.from_dlpack(mine.to_dlpack(x)))
        for given in self._in_layouts(sample(self._usual(), CUBE)):
            if "cpu" in mine.dlpack_devices and not runs_backwards(given.x):
                self.ask("to_dlpack", given.x, case=given.case)
                self.run(Call("from_dlpack(to_dlpack())", function, mine, mine), given)

    def test_dtypes_are_named(self) -> None:
        """Where arrays are exchanged by DLPack, `dtype_of` names their dtypes."""
        for dtype in self._dtypes() if self.tested.dlpack_devices else ():
            given = self._given(sample(dtype, (2, 3)))
            name = self.ask("dtype_of", given.x, case=given.case)
            equal(name, dtype.name, f"dtype_of(), for {given.case}")

    def test_addresses(self) -> None:
        """`address` returns where the first element is."""
        for given in self._in_layouts(numbers(self._usual(), CUBE)):
            address = self.ask("address", given.x, case=given.case)
            if address is not None and self.tested.to_numpy_shares:
                expected = self.tested.to_numpy(given.x).ctypes.data
                equal(address, expected, f"address(), for {given.case}")

    def test_pairs_with_all_others(self) -> None:
        """Arrays in a tree are converted to every other backend and back, with equal values."""
        mine, values = self.tested, sample(self._usual(), CUBE)
        given = [self._given(values), *islice(self._in_layouts(values), 1)]
        for other in self._others():
            there = Call(f"convert() to {other.name}", partial(convert, to=other), mine, other)
            ys = [(each.case, y) for each, y in zip(given, self.run(there, *given), strict=True)]
            back = Call(f"convert() from {other.name}", partial(convert, to=mine), other, mine)
            self.run(back, *(Given(y, self.values_of(other, y), case) for case, y in ys))

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        for method in ("to_numpy", "from_numpy"):
            given = self._given(sample(self._usual(), (2, 3)), method=method)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.run(self._call(method, None), given)

    def test_gradients_cross(self) -> None:
        """Gradients cross to and from every other library that has them, and so do second derivatives."""
        mine = self.tested
        if mine.autodiff is not None and self._has("float32"):
            others = [other for other in self._others() if other.autodiff is not None]
            pairs = [pair for other in others for pair in ((mine, other), (other, mine))]
            every(partial(self._check_gradients, *pair) for pair in pairs)

    def _check_gradients(self, inner: Backend, outer: Backend) -> None:
        """Check gradients of a library through a function of another one."""
        values = np.array([0.5, -1.0, 2.0], np.float32)
        cube = agnostic(inner, differentiable=True)(lambda x: x * x * x)
        x = self.make(values) if outer is self.tested else convert(values, outer)
        ones = convert(np.ones(3, np.float32), outer)
        autodiff = outer.autodiff
        assert autodiff is not None

        def function(xs: list[Any]) -> Flat:
            return Flat([cube(xs[0])])

        result, pullback = autodiff.vjp(function, (0,), compiled=False)([x])
        found = [result.arrays[0], pullback([ones])[0], pullback([ones])[0]]
        gradient = autodiff.gradient(function, 1, (0,))
        _, pullback = autodiff.vjp(gradient, (0,), compiled=False)([x, ones])
        found += pullback([ones])[:1]
        expected = (values**3, 3 * values**2, 3 * values**2, 6 * values)
        names = ("value", "gradient", "gradient again", "second derivative")
        for name, y, right in zip(names, found, expected, strict=True):
            what = f"vjp() and call() of autodiff: the {name} of {outer.name} through {inner.name}"
            same(convert(y, "numpy"), right, what)
