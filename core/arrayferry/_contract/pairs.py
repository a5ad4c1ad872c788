"""Tests of many arrays at once, of pairs of libraries, and of conversions as objects."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from arrayferry._agnostic import agnostic
from arrayferry._errors import describe_error
from arrayferry._options import Options
from arrayferry._plugin.autodiff import Flat
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.converter import Converter
from arrayferry._registry.registry import default_registry

from .base import OWED, BackendTests, as_numpy, convert, converter, library_of
from .same import describe_type, describe_value, same
from .samples import SHAPES, sample

__all__ = ["PairTests"]

_FIX_AUTODIFF = "Change function() and call() of autodiff, or set autodiff to None."


class PairTests(BackendTests):
    """The tests of pairs."""

    # Many arrays at once, pairs, pickling and warnings.

    def test_to_numpy_many_matches_to_numpy(self) -> None:
        """`to_numpy_many` returns what `to_numpy` returns for each array."""
        arrays = [self.make(sample(self._usual(), shape)) for shape in SHAPES]
        found = list(self._call("to_numpy_many", arrays, what=f"for {len(arrays)} arrays"))
        assert len(found) == len(arrays), (
            f"to_numpy_many() returned {len(found)} for {len(arrays)} arrays. {OWED['to_numpy_many']}"
        )
        for index, (array, out) in enumerate(zip(arrays, found, strict=True)):
            what = f"to_numpy_many(), for array {index} of {len(arrays)}"
            same(np.asarray(out), self._backend.to_numpy(array), what, OWED["to_numpy_many"])

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exchanged by DLPack, if `dlpack_devices` says so."""
        if "cpu" not in self._backend.dlpack_devices:
            return
        values = sample(self._usual(), (2, 3))
        exported = self._call("to_dlpack", self.make(values), what="for an ordinary array")
        missing = [m for m in ("__dlpack__", "__dlpack_device__") if not hasattr(exported, m)]
        assert not missing, (
            f"to_dlpack() returned a {describe_type(exported)} without {' and '.join(missing)}. {OWED['to_dlpack']}"
        )
        array = self._call("from_dlpack", exported, what="for what to_dlpack() returned")
        self._recognised(array, "from_dlpack()")
        same(self.read(array), values, "from_dlpack()", OWED["from_dlpack"])

    def test_addresses(self) -> None:
        """`address` returns where the first element is."""
        array = self.make(self._numbers(4).copy())
        address = self._call("address", array, what="for an ordinary array")
        if address is None:
            return
        assert type(address) is int, (
            f"address() returned {describe_value(address)}. {OWED['address']}"
        )
        if not self._backend.to_numpy_shares:
            return
        found = self._backend.to_numpy(array).ctypes.data
        assert address == found, (
            f"address() returned {address}, but the values are at {found}. {OWED['address']}"
        )

    def test_direct_converters_match_the_general_path(self) -> None:
        """Direct converters return equal arrays, one or many at once, with and without `copy=True`."""
        mine = self._backend
        known = default_registry().backends()
        for direct in default_registry().catalog.converters:
            ends = (direct.source, direct.target)
            if mine.name not in ends or not all(n in known and known[n].usable for n in ends):
                continue
            source, target = known[direct.source], known[direct.target]
            if direct.source_device == "cpu" and direct.target_device in self._kinds(target):
                self._check_direct(direct, source, target)

    def _kinds(self, backend: Backend) -> set[str]:
        """Return the kinds of the devices that a backend can use here."""
        return {str(name).partition(":")[0] for name in backend.devices()}

    def _check_direct(self, direct: Converter, source: Backend, target: Backend) -> None:
        handled, problem = False, "returned NotImplemented"
        for copy in (None, True):
            for name, way in self._ways(direct, Options(copy=copy)):
                for size in (3, 1024, 64 * 1024):
                    lengths = (size, size // 2 + 1)
                    arrays = [convert(self._numbers(n), source, copy=True) for n in lengths]
                    try:
                        found = list(way(arrays))
                    except Exception as error:  # which leaves an array to the general path
                        problem = f"raised {describe_error(error)}"
                        continue
                    what = f"{name}() of {direct!r}, copy={copy}"
                    assert len(found) == len(arrays), (
                        f"{what}, returned {len(found)} for {len(arrays)} arrays. Return one for each"
                    )
                    for x, y in zip(arrays, found, strict=True):
                        if y is not NotImplemented:
                            handled = True
                            self._check_result(what, x, y, source, target, copy)
        assert handled, (
            f"{direct!r} {problem} for every ordinary array, so it is never used. Handle arrays of dtype {self._usual().name} on the "
            "CPU in its convert()"
        )

    def _ways(
        self, direct: Converter, options: Options
    ) -> Iterator[tuple[str, Callable[[list[Any]], Sequence[Any]]]]:
        """Yield the ways in which a converter is used, by the names of its methods."""
        yield "convert", lambda xs: [direct.convert(x, None, options.copy) for x in xs]
        one, many = direct.bind(options), direct.bind_many(options)
        if one is not None:
            yield "bind", lambda xs: list(map(one, xs))
        for _ in (
            range(3) if many is not None else ()
        ):  # it may do otherwise for arrays that it has seen
            yield "bind_many", many  # type: ignore[misc]

    def _check_result(
        self, what: str, x: Any, y: Any, source: Backend, target: Backend, copy: bool | None
    ) -> None:
        found = library_of(y)
        assert found == target.name, (
            f"{what}, returned a {describe_type(y)}, an array of {found}. Return one of {target.name}, or NotImplemented"
        )
        values = np.asarray(target.to_numpy(y))
        fix = "Return the values, the shape and the dtype of the array, or NotImplemented."
        same(values, source.to_numpy(x), what, fix)
        if copy:
            message = f"{what}, ignores copy=True: {{}} was written to, and the other changed"
            fix = "Copy if copy is True, or return NotImplemented."
            values = self._values_of(source, x)
            if self._fill(source, x, -1):
                same(self._values_of(target, y), values, message.format("the source"), fix)
                values = self._values_of(source, x)
            if self._fill(target, y, -2):
                same(self._values_of(source, x), values, message.format("the result"), fix)

    def _values_of(self, backend: Backend, array: Any) -> np.ndarray[Any, Any]:
        if backend.name == self._backend.name:
            return self.read(array)
        return np.array(backend.to_numpy(array))

    def _fill(self, backend: Backend, array: Any, value: float) -> bool:
        """Write a value into every element of an array of any backend. Tell whether it can be done."""
        if backend.memory != "writable":
            return False
        if backend.name == self._backend.name:
            self.write(array, value)
            return True
        view = backend.to_numpy(array)
        if not backend.to_numpy_shares or not view.flags.writeable:
            return False
        view[...] = value
        return True

    def test_pairs_with_all_others(self) -> None:
        """Arrays in a tree are converted to every other backend and back, with equal values."""
        values = sample(self._usual(), (2, 3))
        for other in self._others():
            there = convert({"x": [self.make(values), "text"]}, other)
            fix = "Change to_numpy(), or the converter of the plugin that returned it"
            found = library_of(there["x"][0])
            assert found == other.name, f"an array to {other.name} became one of {found}. {fix}"
            assert there["x"][1] == "text", f"the text beside it became {there['x'][1]!r}. {fix}"
            back = convert(there, self._backend)
            self._recognised(back["x"][0], f"the conversion from {other.name}")
            same(
                self.read(back["x"][0]),
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
        others = [other for other in self._others() if other.autodiff is not None]
        for other in others if mine.autodiff is not None else ():
            for inner, outer in ((mine, other), (other, mine)):
                where = f"{outer.name} through {inner.name}"
                crossed = agnostic(inner, differentiable=True)(lambda x: x * x * x)
                assert outer.autodiff is not None
                x = self.make(values) if outer is mine else convert(values, outer)
                ones = convert(np.ones(3, np.float32), outer)

                def flat(arrays: list[Any], crossed: Any = crossed) -> Flat:
                    return Flat([crossed(arrays[0])])

                function = outer.autodiff.function(flat, compiled=False)
                found, pullback = function.vjp([x], (0,))
                same(as_numpy(found.arrays[0]), values**3, f"the value in {where}", _FIX_AUTODIFF)
                for _ in range(2):
                    (gradient,) = pullback([ones])
                    same(
                        as_numpy(gradient), 3 * values**2, f"the gradient of {where}", _FIX_AUTODIFF
                    )
                try:
                    _, pullback = function.transposed(1, (0,)).vjp([x, ones], (0,))
                except NotImplementedError:
                    continue
                (second,) = pullback([ones])
                same(
                    as_numpy(second), 6 * values, f"the second derivative of {where}", _FIX_AUTODIFF
                )

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
