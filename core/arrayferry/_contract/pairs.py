"""Tests of many arrays at once, of pairs of libraries, and of conversions as objects."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from arrayferry._agnostic import agnostic
from arrayferry._plugin.autodiff import Flat
from arrayferry._plugin.backend import Backend

from .arrays import ArrayTests
from .base import OWED, as_numpy, convert, converter, library_of
from .lacking import lacking
from .same import describe_type, describe_value, same
from .samples import CUBE, SHAPES, numbers, sample

__all__ = ["PairTests"]


_FIX_AUTODIFF = "Change function() and call() of autodiff, or set autodiff to None."


def _strides(array: Any) -> tuple[int, ...]:
    strides = getattr(array, "strides", ())
    return strides if isinstance(strides, tuple) else ()


class PairTests(ArrayTests):
    """The tests of pairs."""

    # Many arrays at once, pairs, pickling and warnings.

    def test_to_numpy_many_matches_to_numpy(self) -> None:
        """`to_numpy_many` returns what `to_numpy` returns for each array, for few and for many."""
        dtypes = [d for d in self._dtypes() if d.kind in "biufc"] or [self._usual()]
        shapes = (*SHAPES, CUBE)
        few = [sample(self._usual(), shape) for shape in SHAPES]
        many = [sample(d, shape, 1) for d in dtypes[:6] for shape in shapes]
        again = [sample(values.dtype, values.shape, 2) for values in many]
        for expected in (few, few[:1], [], many, again):
            arrays = [self.make(values) for values in expected]
            outputs = self._call("to_numpy_many", arrays, what=f"for {len(arrays)} arrays")
            assert isinstance(outputs, Sequence), (
                f"to_numpy_many() returned {describe_value(outputs)} for {len(arrays)} arrays. {OWED['to_numpy_many']}"
            )
            assert len(outputs) == len(arrays), (
                f"to_numpy_many() returned {len(outputs)} for {len(arrays)} arrays. {OWED['to_numpy_many']}"
            )
            for index, (values, out) in enumerate(zip(expected, outputs, strict=True)):
                what = f"to_numpy_many(), for array {index} of {len(arrays)}"
                same(np.asarray(out), values, what, OWED["to_numpy_many"])

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exchanged by DLPack, if `dlpack_devices` says so."""
        if "cpu" not in self._backend.dlpack_devices:
            return
        values = sample(self._usual(), CUBE)
        for array, case, _ in self._lying(values, more=True):
            if not self._holds(array, values):
                continue
            exported = self._call("to_dlpack", array, what=case)
            missing = [m for m in ("__dlpack__", "__dlpack_device__") if not hasattr(exported, m)]
            assert not missing, (
                f"to_dlpack() returned a {describe_type(exported)} without {' and '.join(missing)}. {OWED['to_dlpack']}"
            )
            if any(stride < 0 for stride in _strides(array)):
                continue
            taken = self._call("from_dlpack", exported, what=f"what to_dlpack() returned, {case}")
            self._recognised(taken, "from_dlpack()")
            same(self.read(taken), values, f"from_dlpack(), {case}", OWED["from_dlpack"])

    def test_addresses(self) -> None:
        """`address` returns where the first element is."""
        values = numbers(self._usual(), CUBE)
        for array, case, _ in self._lying(values, more=True):
            address = self._call("address", array, what=case)
            if address is None:
                continue
            assert type(address) is int, (
                f"address() returned {describe_value(address)}. {OWED['address']}"
            )
            if self._backend.to_numpy_shares:
                expected = self._backend.to_numpy(array).ctypes.data
                assert address == expected, (
                    f"address() returned {address}, but the values are at {expected}, {case}. {OWED['address']}"
                )

    def test_pairs_with_all_others(self) -> None:
        """Arrays in a tree are converted to every other backend and back, with equal values."""
        values = sample(self._usual(), CUBE)
        array = self._from_numpy(np.array(values, order="F"), "in Fortran order")
        for other in self._others():
            there = convert({"x": [array, "text", self.make(values)]}, other)
            fix = "Change to_numpy(), or the converter of the plugin that returned it"
            library = library_of(there["x"][0])
            assert library == other.name, f"an array to {other.name} became one of {library}. {fix}"
            assert there["x"][1] == "text", f"the text beside it became {there['x'][1]!r}. {fix}"
            back = convert(there, self._backend)
            for each in (back["x"][0], back["x"][2]):
                self._recognised(each, f"the conversion from {other.name}")
                same(
                    self.read(each),
                    values,
                    f"to {other.name} and back",
                    "Change to_numpy(), from_numpy(), or the converters of the plugin for that pair.",
                )

    def test_gradients_cross(self) -> None:
        """Gradients cross to and from every other library that has them, and so do second derivatives."""
        mine = self._backend
        held = mine.dtypes()
        if held is not None and "float32" not in held:
            return
        values = np.array([0.5, -1.0, 2.0], np.float32)
        missing: list[str] = []
        others = [other for other in self._others() if other.autodiff is not None]
        for other in others if mine.autodiff is not None else ():
            for inner, outer in ((mine, other), (other, mine)):
                try:
                    self._check_gradients(inner, outer, values)
                except Exception as error:
                    told = lacking(error)
                    if not told:
                        raise
                    missing.append(f"{outer.name} through {inner.name} ({told})")
        if missing:
            pytest.skip(f"not tested: gradients of {', '.join(missing)}")

    def _check_gradients(
        self, inner: Backend, outer: Backend, values: np.ndarray[Any, Any]
    ) -> None:
        """Check gradients of a library through a function of another one."""
        where = f"{outer.name} through {inner.name}"
        crossed = agnostic(inner, differentiable=True)(lambda x: x * x * x)
        assert outer.autodiff is not None
        x = self.make(values) if outer is self._backend else convert(values, outer)
        ones = convert(np.ones(3, np.float32), outer)

        def flat(arrays: list[Any], crossed: Any = crossed) -> Flat:
            return Flat([crossed(arrays[0])])

        function = outer.autodiff.function(flat, compiled=False)
        result, pullback = function.vjp([x], (0,))
        same(as_numpy(result.arrays[0]), values**3, f"the value in {where}", _FIX_AUTODIFF)
        for _ in range(2):
            (gradient,) = pullback([ones])
            same(as_numpy(gradient), 3 * values**2, f"the gradient of {where}", _FIX_AUTODIFF)
        try:
            _, pullback = function.transposed(1, (0,)).vjp([x, ones], (0,))
        except NotImplementedError:
            return
        (second,) = pullback([ones])
        same(as_numpy(second), 6 * values, f"the second derivative of {where}", _FIX_AUTODIFF)

    def test_conversions_can_be_pickled(self) -> None:
        """A conversion to the backend works after pickling."""
        values = sample(self._usual(), (2,))
        if isinstance(self.backend, Backend):
            return
        again = pickle.loads(pickle.dumps(converter(self._backend.name)))
        same(self.read(again(values)), values, "a converter, after pickling", OWED["from_numpy"])

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        values = sample(self._usual(), (4,))
        array = self.make(values)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            convert(array, "numpy")
            to_numpy = list(caught)
            convert(values, self._backend)
        for warning in caught:
            method = "to_numpy" if warning in to_numpy else "from_numpy"
            raise AssertionError(
                f"a conversion warned: {warning.category.__name__}: {warning.message}. Change {method}() so that an "
                "ordinary array gives no warning"
            )
