"""The contract kit: tests that a plugin author inherits to check a backend.

Subclass `BackendContract`, name the backend, implement `make`, and run pytest:

    import numpy
    import mylib
    from arrayferry.testing import BackendContract

    class TestMyBackend(BackendContract):
        backend = "mylib"

        def make(self, values):
            return mylib.array(values.tolist(), dtype=values.dtype.name)

The name of each test says what it checks, and its message what was found.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import _api
from ._agnostic import agnostic
from ._api import backend_of
from ._errors import ConversionError, CopyRequiredError, UnsupportedDtypeError
from ._options import Options
from ._plugin.autodiff import Flat
from ._plugin.backend import STANDARD_DTYPES, Backend
from ._plugin.converter import Converter
from ._registry.discovery import is_built_in
from ._registry.registry import default_registry
from ._route.dtypes import dtype_named, kind_of, limits_of

try:
    import pytest
except ImportError as error:  # pragma: no cover
    raise ImportError("arrayferry.testing needs pytest. Run: pip install pytest") from error

__all__ = ["BackendContract"]


def convert(value: Any, *to: Any, **options: Any) -> Any:
    """Convert as users do; arrays of a sparse library are made dense."""
    return _api.convert(value, *to, sparse="dense", **options)


def converter(*to: Any, **options: Any) -> Any:
    """Make a conversion that does the same."""
    return _api.converter(*to, sparse="dense", **options)


SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (5,),
    (0,),
    (2, 3),
    (3, 0, 2),
    (2, 1, 3),
    (2, 3, 1, 2),
)
SIZES = (1, 16, 1024, 16 * 1024, 256 * 1024, 1024 * 1024)
"""Numbers of float32 elements: 4 bytes to 1 MiB, past the sizes at which frameworks change strategy."""


class BackendContract:
    """The tests that every backend must pass. Name your subclass `Test...`.

    Attributes:
        backend: the backend under test, by name, or an instance, which is registered for the tests.
        others: names of the backends to convert to and from; None for the built-in ones that can be
            used here.
        dtypes: names of the dtypes to try; None for all of `dtypes()`.

    Example:
        >>> import numpy as np
        >>> from arrayferry.testing import BackendContract
        >>> class TestNumpy(BackendContract):
        ...     backend = "numpy"
        ...     def make(self, values):
        ...         return values.copy()
        >>> TestNumpy().test_to_numpy()
    """

    backend: str | Backend = ""
    others: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None

    # For the author to fill in.

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an array of the library with these values, shape and dtype, without the plugin.

        It must own its memory. Required.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how an array is made")

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        """Copy the values of an array into a NumPy array. The default uses the plugin."""
        return np.array(self._backend.to_numpy(array))

    def write(self, array: Any, value: float) -> None:
        """Write a value to every element of an array, in place. Needed if arrays are writable."""
        array[...] = value

    def unportable(self) -> list[tuple[Any, str]]:
        """Return arrays that hold more than values, each with a word that the error must contain."""
        return []

    # Internals.

    @property
    def _backend(self) -> Backend:
        if isinstance(self.backend, Backend):
            return self.backend
        return default_registry().backend(self.backend)

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        registry = default_registry()
        own = isinstance(self.backend, Backend)
        mine = own and registry.backends().get(self._backend.name) is not self.backend
        if mine:
            registry.register(self.backend)
        problem = self._backend.problem()
        if problem is not None:
            pytest.skip(str(problem))
        yield
        if mine:
            registry.unregister(self.backend)

    def _dtypes(self) -> list[np.dtype[Any]]:
        supported = self.dtypes or self._backend.dtypes()
        names = sorted(STANDARD_DTYPES if supported is None else supported)
        return [found for found in map(dtype_named, names) if found is not None]

    def _others(self) -> list[Backend]:
        known = default_registry().backends()
        mine = self._backend.name
        names = self.others or tuple(
            name for name, backend in known.items() if name != mine and is_built_in(backend)
        )
        return [known[name] for name in names if name in known and known[name].usable]

    def _floats(self, size: int, aligned: bool = True) -> np.ndarray[Any, Any]:
        """Writable float32 memory that begins at a multiple of 64 bytes, or 4 bytes past one."""
        raw = np.zeros(size * 4 + 128, np.uint8)
        begin = -raw.ctypes.data % 64 + (0 if aligned else 4)
        floats: np.ndarray[Any, Any] = raw[begin : begin + size * 4].view(np.float32)
        floats[:] = np.arange(size) % 1000 + 1
        return floats

    def _memory_cases(self) -> Iterator[tuple[int, bool, str]]:
        for size in SIZES:
            for aligned in (True, False):
                yield size, aligned, f"{size * 4} bytes, {'' if aligned else 'not '}aligned to 64"

    @property
    def _writable(self) -> bool:
        return self._backend.memory == "writable"

    # Detection.

    def test_its_arrays_are_recognised(self) -> None:
        """An array of the library is recognised by its type."""
        array = self.make(_sample(np.dtype("float32"), (2,)))
        found = backend_of(array)
        assert found.name == self._backend.name, (
            f"a {type(array)} is recognised as an array of {found.name}; array_types are {self._backend.array_types}"
        )

    def test_arrays_are_not_traced(self) -> None:
        """An ordinary array is not traced."""
        array = self.make(_sample(np.dtype("float32"), (2,)))
        assert not self._backend.is_traced(array), "is_traced is true for an ordinary array"

    # Values.

    def test_to_numpy(self) -> None:
        """`to_numpy` returns the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = _sample(dtype, shape)
                out = self._backend.to_numpy(self.make(values))
                assert isinstance(out, np.ndarray), (
                    f"to_numpy returned a {type(out)}, not a numpy.ndarray"
                )
                _same(out, values, f"to_numpy, {dtype.name}, shape {shape}")

    def test_from_numpy(self) -> None:
        """`from_numpy` returns an array with the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = _sample(dtype, shape)
                array = self._backend.from_numpy(values.copy())
                assert backend_of(array).name == self._backend.name, (
                    f"from_numpy returned a {type(array)}, not an array of {self._backend.name}"
                )
                _same(self.read(array), values, f"from_numpy, {dtype.name}, shape {shape}")

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways."""
        for dtype in self._dtypes():
            values = _special(dtype)
            _same(self._backend.to_numpy(self.make(values)), values, f"to_numpy, {dtype.name}")
            _same(
                self.read(self._backend.from_numpy(values.copy())),
                values,
                f"from_numpy, {dtype.name}",
            )

    def test_memory_layouts(self) -> None:
        """A NumPy array keeps its values, whatever its memory layout."""
        for name, values in _layouts():
            expected = np.array(values)
            if self._backend.name != "numpy":
                expected = expected.astype(expected.dtype.newbyteorder("="))
            _same(self.read(convert(values, self._backend)), expected, name)

    def test_sources_are_not_changed(self) -> None:
        """No conversion changes its source, in the library or in NumPy."""
        values = _sample(np.dtype("float32"), (2, 3))
        array = self.make(values)
        self._backend.to_numpy(array)
        self._backend.copy(array)
        convert(array, "numpy", copy=True)
        _same(self.read(array), values, "the array, after it was read")
        memory = values.copy()
        taken = memory.view()
        self._backend.from_numpy(taken)
        convert(taken, self._backend, copy=True)
        _same(memory, values, "the NumPy array, after it was converted")
        assert taken.shape == values.shape, "the shape of the NumPy array changed"
        assert taken.strides == values.strides, "the strides of the NumPy array changed"
        assert taken.flags.writeable, "the NumPy array became read-only"

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        for array, word in self.unportable():
            other = "numpy" if self._backend.name != "numpy" else "torch"
            with pytest.raises(ConversionError) as caught:
                _api.convert({"x": array}, other, sparse="raise")
            text = str(caught.value)
            assert word in text, f"the error does not mention {word!r}: {text}"
            assert caught.value.remedy, f"the error has no remedy: {text}"
            assert "['x']" in text, f"the error does not name the place: {text}"

    # Dtypes.

    def test_missing_dtypes_follow_the_narrowing_rule(self) -> None:
        """A missing dtype becomes the widest of its kind, and numbers are never lost silently."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        for name, number in (("int64", 2**40), ("uint64", 2**60), ("float64", 1e300)):
            values = np.array([number], dtype=name)
            if name in supported:
                _same(self.read(convert(values, self._backend)), values, name)
                continue
            with pytest.raises(ConversionError):
                convert(values, self._backend)
            with contextlib.suppress(UnsupportedDtypeError):
                small = np.array([3], dtype=name)
                found = self.read(convert(small, self._backend))
                assert found.dtype.kind == small.dtype.kind, f"{name} became {found.dtype}"
                assert found.tolist() == [3], f"{name} 3 became {found}"

    def test_text_is_refused_or_kept(self) -> None:
        """Text that the backend does not support is refused, or kept on request."""
        text = np.array(["a", "b"])
        if self._backend.dtypes() is None:
            return
        with pytest.raises(UnsupportedDtypeError):
            convert(text, self._backend)
        assert convert(text, self._backend, unsupported="keep") is text

    # Memory.

    def test_copy_true_copies(self) -> None:
        """With `copy=True`, a write to one array is never seen in the other."""
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            array = convert(memory, self._backend, copy=True)
            memory[:] = -1
            _same(self.read(array), values, f"copy=True from numpy, {case}: NumPy was written to")
            array = self.make(values)
            out = convert(array, "numpy", copy=True)
            assert out.flags.writeable, f"copy=True to numpy returned a read-only array, {case}"
            out[:] = -1
            _same(self.read(array), values, f"copy=True to numpy, {case}: NumPy was written to")
            again = convert(array, self._backend, copy=True)
            if self._writable:
                self.write(again, -1)
                _same(
                    self.read(array), values, f"copy=True within, {case}: the copy was written to"
                )

    def test_immutable_arrays_never_change(self) -> None:
        """No write to NumPy memory reaches an array that must never change."""
        if self._backend.memory not in ("immutable", "lazy"):
            return
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            array = convert(memory, self._backend)
            memory[:] = -1
            _same(self.read(array), values, f"from numpy, {case}: NumPy was written to")
            array = self.make(values)
            out = convert(array, "numpy")
            if out.flags.writeable:
                out[:] = -1
            _same(self.read(array), values, f"to numpy, {case}: NumPy was written to")

    def test_read_only_memory_is_never_written(self) -> None:
        """No write to an array of the library reaches a read-only NumPy array."""
        if not self._writable:
            return
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            memory.flags.writeable = False
            array = convert(memory, self._backend)
            if self._backend.name == "numpy":
                assert not array.flags.writeable
                continue
            self.write(array, -1)
            _same(memory, values, f"read-only NumPy memory, {case}: the array was written to")

    def test_memory_is_as_stated(self) -> None:
        """Arrays can be written to if `memory` is "writable", and cannot if it is "immutable"."""
        memory = self._backend.memory
        if memory not in ("writable", "immutable"):
            return
        array = self.make(self._floats(4).copy())
        before = self.read(array)
        failure = ""
        try:
            if memory == "writable":
                self.write(array, -1)
            else:
                array[...] = -1
        except Exception as error:
            failure = f" ({type(error).__name__}: {error})"
        written = self.read(array).tolist() != before.tolist()
        if memory == "writable":
            assert written, (
                f"memory is 'writable', but an array could not be written to{failure}: set it to "
                "'immutable', or implement write() in the test"
            )
        else:
            assert not written, (
                "memory is 'immutable', but an array could be written to: set it to 'writable'"
            )

    def test_sharing_is_as_stated(self) -> None:
        """`to_numpy_shares` and `from_numpy_shares` are correct, checked by writing."""
        for size, aligned, case in self._memory_cases():
            values = self._floats(size, aligned).copy()
            array = self.make(values)
            out = self._backend.to_numpy(array)
            if self._backend.to_numpy_shares is False and out.flags.writeable:
                out[:] = -1
                _same(
                    self.read(array),
                    values,
                    f"to_numpy_shares is False, but it shares: set it to None or True, {case}",
                )
            if self._backend.to_numpy_shares and self._writable:
                self.write(array, -1)
                assert (out == -1).all(), (
                    f"to_numpy_shares is True, but it copies: set it to None or False, {case}"
                )
            if (
                self._backend.memory in ("immutable", "lazy")
                and self._backend.to_numpy_shares is not False
            ):
                assert not out.flags.writeable, (
                    "to_numpy returned a writable view of memory that must never change: return a read-only "
                    "view, or set `memory` or `to_numpy_shares`"
                )
            memory = self._floats(size, aligned)
            array = self._backend.from_numpy(memory)
            memory[:] = -1
            if self._backend.from_numpy_shares is False:
                _same(
                    self.read(array),
                    values,
                    f"from_numpy_shares is False, but it shares: set it to None or True, {case}",
                )
            if self._backend.from_numpy_shares:
                assert (self.read(array) == -1).all(), (
                    f"from_numpy_shares is True, but it copies: set it to None or False, {case}"
                )

    def test_copy_false_shares_or_raises(self) -> None:
        """With `copy=False`, memory is shared, or the conversion raises."""
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            try:
                array = convert(memory, self._backend, copy=False)
            except CopyRequiredError:
                pass
            else:
                memory[:] = -1
                assert (self.read(array) == -1).all(), f"copy=False from numpy copied, {case}"
            array = self.make(memory.copy())
            try:
                out = convert(array, "numpy", copy=False)
            except CopyRequiredError:
                continue
            if self._writable:
                self.write(array, -2)
                assert (out == -2).all(), f"copy=False to numpy copied, {case}"

    def test_results_outlive_their_sources(self) -> None:
        """A result is still correct after its source is deleted and the memory may be reused."""
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            into = convert(memory, self._backend)
            source = self.make(values)
            out = convert(source, "numpy")
            del memory, source
            gc.collect()
            filler = [np.full(size, -9, np.float32) for _ in range(8)]
            _same(self.read(into), values, f"from numpy, {case}: the source was deleted")
            _same(out, values, f"to numpy, {case}: the source was deleted")
            del filler

    # Devices.

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be put on each of `devices()`, and `device_of` names that device."""
        values = _sample(np.dtype("float32"), (3,))
        devices = list(self._backend.devices())
        assert devices, "devices() is empty"
        assert all(isinstance(device, str) for device in devices), f"devices() returned {devices}"
        for device in devices:
            array = convert(values, self._backend, device=device)
            found = self._backend.device_of(array)
            assert found == device, f"asked for {device}, but device_of returned {found}"
            _same(self.read(array), values, f"on {device}")
            moved = convert(array, self._backend, device=devices[0])
            assert self._backend.device_of(moved) == devices[0], f"not moved from {device}"
            copied = convert(array, self._backend, copy=True)
            assert self._backend.device_of(copied) == device, f"copy=True moved it from {device}"

    # Random numbers.

    def test_random_numbers(self) -> None:
        """Random numbers depend on the seed alone, and have the shape, the dtype and the range asked for."""
        backend = self._backend
        held = backend.dtypes()
        bounds = {"uniform": (-1.0, 2.0), "integers": (3, 7), "normal": (0.0, 1.0)}
        dtypes = {"uniform": "float32", "integers": "int32", "normal": "float32"}
        names = [name for name in bounds if held is None or dtypes[name] in held]
        for name in names:
            drawn = []
            for seed in (1, 1, 2):
                rng = backend.random(seed)
                both = [getattr(rng, name)((50, 4), *bounds[name]) for _ in range(2)]
                drawn.append(np.stack([np.asarray(backend.to_numpy(x)) for x in both]))
            _same(drawn[1], drawn[0], f"random, {name}, with the same seed twice")
            assert not np.array_equal(drawn[0], drawn[2]), f"{name} does not depend on the seed"
            assert not np.array_equal(drawn[0][0], drawn[0][1]), f"{name} repeats its numbers"
            assert drawn[0].shape == (2, 50, 4), f"{name} has the shape {drawn[0].shape[1:]}"
            assert drawn[0].dtype == dtypes[name], f"{name} has the dtype {drawn[0].dtype}"
            low, high = bounds[name]
            if name != "normal":
                assert low <= drawn[0].min() < low + 0.1 * (high - low), f"{name}: {drawn[0].min()}"
                assert high - 0.3 * (high - low) < drawn[0].max() <= high, (
                    f"{name}: {drawn[0].max()}"
                )
                assert name == "uniform" or drawn[0].max() == high - 1, f"{name}: {drawn[0].max()}"
            else:
                assert abs(drawn[0].mean()) < 0.3, f"normal has the mean {drawn[0].mean()}"
                assert 0.8 < drawn[0].std() < 1.2, f"normal has the deviation {drawn[0].std()}"
        if "integers" in names:
            logits = backend.from_numpy(np.array([0.0, 3.0, -100.0], np.float32))
            found = np.asarray(backend.to_numpy(backend.random(1).categorical((500,), logits)))
            assert set(found.tolist()) == {0, 1}, f"categorical gives {set(found.tolist())}"
            assert 0.85 < found.mean() < 1.0, f"categorical has the mean {found.mean()}"

    # Many arrays at once, pairs, pickling and warnings.

    def test_to_numpy_many_matches_to_numpy(self) -> None:
        """`to_numpy_many` returns what `to_numpy` returns for each array."""
        arrays = [self.make(_sample(np.dtype("float32"), shape)) for shape in SHAPES]
        for array, out in zip(arrays, self._backend.to_numpy_many(arrays), strict=True):
            _same(np.asarray(out), self._backend.to_numpy(array), "to_numpy_many")

    def test_direct_converters_match_the_general_path(self) -> None:
        """Direct converters return equal arrays, one or many at once, with and without `copy=True`."""
        mine = self._backend
        for direct in default_registry().catalog.converters:
            if mine.name not in (direct.source, direct.target):
                continue
            known = default_registry().backends()
            if not all(
                name in known and known[name].usable for name in (direct.source, direct.target)
            ):
                continue
            if "cpu" not in (direct.source_device, direct.target_device):
                continue
            self._check_direct(direct, known[direct.source], known[direct.target])

    def _check_direct(self, direct: Converter, source: Backend, target: Backend) -> None:
        for copy in (None, True):
            options = Options(copy=copy)
            one, many = direct.bind(options), direct.bind_many(options)
            ways: list[Callable[[list[Any]], list[Any]]] = [
                lambda xs, copy=copy: [direct.convert(x, None, copy) for x in xs]  # type: ignore[misc]
            ]
            if one is not None:
                ways.append(lambda xs, one=one: list(map(one, xs)))  # type: ignore[misc]
            if many is not None:
                ways += [many] * 3  # it may do otherwise for arrays that it has seen
            for size in (3, 1024, 64 * 1024):
                for way in ways:
                    arrays = [
                        convert(self._floats(n), source, copy=True) for n in (size, size // 2 + 1)
                    ]
                    for x, y in zip(arrays, way(arrays), strict=True):
                        if y is NotImplemented:
                            continue
                        values = np.asarray(target.to_numpy(y))
                        _same(values, source.to_numpy(x), f"{direct}, copy={copy}")
                        if copy:
                            self._check_copied(direct, x, y, source, target)

    def _check_copied(
        self, direct: Converter, x: Any, y: Any, source: Backend, target: Backend
    ) -> None:
        values = self._values_of(source, x)
        message = f"{direct} ignores copy=True: {{}} was written to. Copy, or return NotImplemented"
        if self._fill(source, x, -1):
            _same(self._values_of(target, y), values, message.format("the source"))
            values = self._values_of(source, x)
        if self._fill(target, y, -2):
            _same(self._values_of(source, x), values, message.format("the result"))

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
        values = _sample(np.dtype("float32"), (2, 3))
        for other in self._others():
            there = convert({"x": [self.make(values), "text"]}, other)
            assert backend_of(there["x"][0]).name == other.name
            assert there["x"][1] == "text"
            back = convert(there, self._backend)
            assert backend_of(back["x"][0]).name == self._backend.name, f"from {other.name}"
            _same(self.read(back["x"][0]), values, f"to {other.name} and back")

    def test_gradients_cross(self) -> None:
        """Gradients cross to and from every other library that has them, and so do second derivatives."""
        mine = self._backend
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
                _same(_values(found.arrays[0]), values**3, f"the value in {where}")
                for _ in range(2):
                    (gradient,) = pullback([ones])
                    _same(_values(gradient), 3 * values**2, f"the gradient of {where}")
                try:
                    _, pullback = function.transposed(1, (0,)).vjp([x, ones], (0,))
                except NotImplementedError:
                    continue
                (second,) = pullback([ones])
                _same(_values(second), 6 * values, f"the second derivative of {where}")

    def test_conversions_can_be_pickled(self) -> None:
        """A conversion to the backend works after pickling."""
        values = _sample(np.dtype("float32"), (2,))
        if isinstance(self.backend, Backend):
            return
        again = pickle.loads(pickle.dumps(converter(self._backend.name)))
        _same(self.read(again(values)), values, "after pickling")

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = _sample(np.dtype("float32"), (4,))
            convert(self.make(values), "numpy")
            convert(values, self._backend)


def _sample(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape))
    numbers = np.arange(size).reshape(shape) % 5
    if dtype.kind in "ifc":
        numbers = numbers - 2
    if dtype.kind == "c":
        numbers = numbers * np.asarray(1 - 2j)
    return np.asarray(np.asarray(numbers).astype(dtype))


def _special(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    kind = kind_of(dtype)
    if kind == "bool":
        return np.array([True, False])
    limits = limits_of(dtype)
    if kind in ("int", "uint"):
        return np.array([int(limits.min), int(limits.max), 0, 1], object).astype(dtype)
    numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
    exact = np.array([limits.max, limits.min, limits.tiny])
    with np.errstate(all="ignore"):
        return np.concatenate([np.array(numbers), exact.astype(np.float64)]).astype(dtype)


def _layouts() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    yield "Fortran order", np.asfortranarray(base)
    yield "transposed", base.T
    yield "strided", base[::2, ::3]
    yield "flipped", base[::-1]
    yield "flipped in both axes", base[::-1, ::-1]
    yield "broadcast", np.broadcast_to(base[0], (3, 6))
    yield "zero strides", np.lib.stride_tricks.as_strided(base, (3, 3), (0, 4))
    yield "big-endian", base.astype(">f4")
    yield (
        "unaligned",
        np.frombuffer(bytearray(b"x" + base.tobytes()), np.uint8)[1:].view(np.float32),
    )
    yield "odd strides", np.ndarray((3,), np.float32, bytearray(20), strides=(5,))
    yield "a field of a record", np.ones(3, [("a", "i1"), ("b", "f4")])["b"]
    yield "read-only", _read_only(base)
    yield "empty", base[:0]
    yield "empty, flipped", base[:0][::-1]
    yield "0-d", np.array(3.0, np.float32)
    yield "a subclass", base.view(np.recarray)
    yield "rank 12", base.reshape((1,) * 10 + (4, 6))


def _read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = x.copy()
    x.flags.writeable = False
    return x


def _values(x: Any) -> Any:
    return convert(x, "numpy")


def _same(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], what: str) -> None:
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: dtype {found.dtype}, not {expected.dtype}"
    ours, theirs = np.array(found), np.array(expected)
    same = ours.tobytes() == theirs.tobytes()
    if not same and ours.dtype.kind in "fc":  # NaNs may differ in their bits
        nan = np.isnan(theirs)
        same = (
            bool((np.isnan(ours) == nan).all()) and ours[~nan].tobytes() == theirs[~nan].tobytes()
        )
    assert same, f"{what}: values {ours.ravel()[:8]}, not {theirs.ravel()[:8]}"


def __dir__() -> list[str]:
    return sorted(__all__)
