"""The contract kit: tests that a plugin author inherits to check a backend.

Subclass `BackendContract`, name the backend, implement `make`, and run pytest:

    import numpy
    import mylib
    from arrayferry.testing import BackendContract

    class TestMyBackend(BackendContract):
        backend = "mylib"

        def make(self, values):
            return mylib.array(values.tolist(), dtype=values.dtype.name)

The name of each test says what it checks. The message of a failure says what was found, and which attribute or
method of the plugin to change, and to what.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import _api
from ._agnostic import agnostic
from ._api import backend_of
from ._contract.alone import find_backend, only_plugins
from ._contract.lazy import BlockTests, ComputeTests
from ._contract.same import describe_type, same
from ._errors import (
    ConversionError,
    CopyRequiredError,
    NotAnArrayError,
    UnsupportedDtypeError,
    describe_error,
)
from ._options import Options
from ._plugin.autodiff import Flat
from ._plugin.backend import STANDARD_DTYPES, Backend
from ._plugin.converter import Converter
from ._plugin.origin import Source
from ._registry.discovery import is_built_in
from ._registry.registry import default_registry
from ._route.dtypes import dtype_named, kind_of, limits_of

try:
    import pytest
except ImportError as error:  # pragma: no cover
    raise ImportError("arrayferry.testing needs pytest. Run: pip install pytest") from error

__all__ = ["BackendContract", "SourceContract"]


def convert(value: Any, *to: Any, **options: Any) -> Any:
    """Convert as users do; arrays of a sparse library are made dense."""
    try:
        return _api.convert(value, *to, sparse="dense", **options)
    except ConversionError as error:
        if error.remedy.endswith("to the author of the plugin."):  # who is the reader here
            fix = _FIX_DEVICE if " put an array on " in error.reason else _FIX_METHOD
            head, stop, _ = error.remedy.rpartition(". ")
            error.remedy = f"{head}{stop}{fix}"
        raise


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


_OWED = {
    "to_numpy": "Return from to_numpy(x) a numpy.ndarray with the values, the shape and the dtype of x, or leave the dtype "
    "out of dtypes().",
    "from_numpy": "Return from from_numpy(x) an array of the library with the values, the shape and the dtype of x, or "
    "leave the dtype out of dtypes().",
    "copy": "Return from copy(x) an array of equal values in memory of its own.",
    "device_of": "Return from device_of(x) the name of its device, spelled as in devices().",
    "is_sparse": "Return True or False from is_sparse(x).",
    "to_dense": "Return from to_dense(x) all values of x, as an array that is not sparse or as a numpy.ndarray.",
    "to_numpy_many": "Return from to_numpy_many(xs) what to_numpy(x) returns for each of xs, in the same order.",
    "to_dlpack": "Return from to_dlpack(x) an object with __dlpack__ and __dlpack_device__, or take 'cpu' out of "
    "dlpack_devices.",
    "from_dlpack": "Return from from_dlpack(x) an array of the library that shares the memory of x, or take 'cpu' out of "
    "dlpack_devices.",
    "address": "Return from address(x) the address of the first element as a whole number, or None.",
    "random": "Return an arrayferry.Random from random(seed, device).",
}
"""What each method has to return, for messages."""
_SPECIAL = "The sign of zero, infinities, NaN and the ends of the range are part of the values."
_FIX_AUTODIFF = "Change function() and call() of autodiff, or set autodiff to None."
_FIX_DEVICE = (
    "Put the array on the device in from_numpy(x, device), return from to_device(x, device) an array on that device, and "
    "return its name from device_of(x), spelled as in devices()."
)
_FIX_METHOD = "Change that method so that it handles every ordinary array."
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


@contextlib.contextmanager
def _usable(part: Any, *, register: bool) -> Iterator[None]:
    """Register a part for the time of a test if need be, and skip the test if the library cannot be used here."""
    if register:
        default_registry().register(part)
    try:
        problem = part.problem()
        if problem is not None:
            pytest.skip(str(problem))
        yield
    finally:
        if register:
            default_registry().unregister(part)


class BackendContract(ComputeTests, BlockTests):
    """The tests that every backend must pass. Name your subclass `Test...`.

    Only the built-in plugins and the one under test are loaded while the tests run, so that no other plugin that is
    installed can make them fail.

    Attributes:
        backend: the backend under test, by name, or an instance, which is registered for the tests.
        others: names of the backends to convert to and from, none of them if it is empty; None for the
            built-in ones. Those that cannot be used here are left out.
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
        raise NotImplementedError(
            f"{type(self).__name__} must say how an array is made. Write make(self, values): return an array of "
            "the library with the values, the shape and the dtype of a NumPy array, such as mylib.array(values)"
        )

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        """Copy the values of an array into a NumPy array. The default uses the plugin."""
        return np.array(self._backend.to_numpy(array))

    def write(self, array: Any, value: float) -> None:
        """Write a value to every element of an array, in place. Needed if arrays are writable."""
        array[...] = value

    def unportable(self) -> list[tuple[Any, str]]:
        """Return arrays that hold more than values, each with a word that the error must contain."""
        return []

    def deferred(self, values: np.ndarray[Any, Any]) -> list[Any]:
        """Return values of each of `deferred_types` that are computed to an array with these values.

        Needed if there are `deferred_types`.
        """
        return []

    # Internals.

    @property
    def _backend(self) -> Backend:
        if isinstance(self.backend, Backend):
            return self.backend
        if not self.backend:
            raise NotImplementedError(
                f'{type(self).__name__} must name the backend under test, such as backend = "mylib"'
            )
        return find_backend(self.backend)

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with only_plugins(self._backend, self.others or ()):
            known = default_registry().backends().get(self._backend.name)
            own = isinstance(self.backend, Backend)
            with _usable(self._backend, register=own and known is not self.backend):
                yield

    def _dtypes(self) -> list[np.dtype[Any]]:
        supported = self._backend.dtypes() if self.dtypes is None else self.dtypes
        names = sorted(STANDARD_DTYPES if supported is None else supported)
        return [found for found in map(dtype_named, names) if found is not None]

    def _others(self) -> list[Backend]:
        registry = default_registry()
        mine = self._backend.name
        if self.others is not None:
            return [b for b in map(registry.backend, self.others) if b.name != mine and b.usable]
        known = registry.backends().items()
        return [b for name, b in known if name != mine and is_built_in(b) and b.usable]

    def _call(self, method: str, *args: Any, what: str) -> Any:
        """Call a method of the backend, and tell what it must return if it raises."""
        try:
            return getattr(self._backend, method)(*args)
        except Exception as error:
            raise AssertionError(
                f"{method}() raised {describe_error(error)}, {what}. {_OWED[method]}"
            ) from error

    def _to_numpy(self, array: Any, what: str) -> Any:
        out = self._call("to_numpy", array, what=what)
        assert isinstance(out, np.ndarray), (
            f"to_numpy() returned a {describe_type(out)}, {what}. {_OWED['to_numpy']}"
        )
        return out

    def _from_numpy(self, values: np.ndarray[Any, Any], what: str) -> Any:
        array = self._call("from_numpy", values, what=what)
        self._recognised(array, "from_numpy()")
        return array

    def _recognised(self, array: Any, who: str) -> None:
        """Check that an array is recognised as one of the backend."""
        mine = self._backend
        try:
            found = backend_of(array).name
        except NotAnArrayError:
            found = "no known library"
        assert found == mine.name, (
            f"{who} returned a {describe_type(array)}, which is recognised as an array of {found}, not of "
            f"{mine.name}. Set array_types, which is {mine.array_types}, to the dotted paths of the array types of the "
            f"library, such as ({describe_type(array)!r},), or return an array of such a type"
        )

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
        self._recognised(self.make(_sample(np.dtype("float32"), (2,))), "make() of the test")

    def test_arrays_are_not_traced(self) -> None:
        """An ordinary array is not traced."""
        array = self.make(_sample(np.dtype("float32"), (2,)))
        assert not self._backend.is_traced(array), (
            "is_traced() is true for an ordinary array. Return False from is_traced(x), unless x has no values yet, "
            "as inside a compiled function"
        )

    def test_dtypes_are_known(self) -> None:
        """`dtypes` names dtypes as NumPy and ml_dtypes spell them."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        assert not isinstance(supported, str), (
            f"dtypes() returned the text {supported!r}. Return a set of names, such as {{'float32'}}"
        )
        unknown = sorted(
            str(name)
            for name in supported
            if not isinstance(name, str)
            or (dtype_named(name) is None and not _is_of_ml_dtypes(name))
        )
        assert not unknown, (
            f"dtypes() names {', '.join(unknown)}, which neither NumPy nor ml_dtypes has. Return names as "
            "numpy.dtype(x).name spells them, such as 'float32'"
        )
        assert supported, "dtypes() is empty. Return the names of the dtypes, such as {'float32'}"

    def test_default_dtypes_of_numbers(self) -> None:
        """`number_dtype` names dtypes of the right kind."""
        for kind in ("bool", "int", "float", "complex"):
            name = self._backend.number_dtype(kind)
            found = dtype_named(name) if isinstance(name, str) else None
            is_right = found is not None and kind_of(found) == kind
            assert is_right, (
                f"number_dtype({kind!r}) returned {name!r}. Return the name of the dtype that asarray() of the library "
                f"chooses for a Python {kind}, such as {np.asarray(_NUMBERS[kind]).dtype.name!r}"
            )

    def test_one_number(self) -> None:
        """`item()` of an array of `item_types` returns its number."""
        array = self.make(np.array([[3.5]], np.float32))
        if not self._backend.has_item(type(array)):
            return
        try:
            found = repr(array.item())
        except Exception as error:
            found = describe_error(error)
        assert found == "3.5", (
            f"item() of a {describe_type(array)} of 3.5 gave {found}. Take its type out of item_types"
        )

    # Values.

    def test_to_numpy(self) -> None:
        """`to_numpy` returns the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = _sample(dtype, shape)
                case = f"for an array of dtype {dtype.name} and shape {shape}"
                out = self._to_numpy(self.make(values), case)
                same(out, values, f"to_numpy(), {case}", _OWED["to_numpy"])

    def test_from_numpy(self) -> None:
        """`from_numpy` returns an array with the same values, shape and dtype."""
        for dtype in self._dtypes():
            for shape in SHAPES:
                values = _sample(dtype, shape)
                case = f"for an array of dtype {dtype.name} and shape {shape}"
                array = self._from_numpy(values.copy(), case)
                same(self.read(array), values, f"from_numpy(), {case}", _OWED["from_numpy"])

    def test_special_values_are_kept(self) -> None:
        """Signed zeros, infinities, NaN, and the lowest and highest numbers are kept both ways."""
        for dtype in self._dtypes():
            values = _special(dtype)
            case = f"for special values of dtype {dtype.name}"
            out = self._to_numpy(self.make(values), case)
            same(out, values, f"to_numpy(), {case}", f"{_OWED['to_numpy']} {_SPECIAL}")
            array = self._from_numpy(values.copy(), case)
            same(
                self.read(array),
                values,
                f"from_numpy(), {case}",
                f"{_OWED['from_numpy']} {_SPECIAL}",
            )

    def test_memory_layouts(self) -> None:
        """A NumPy array keeps its values, whatever its memory layout."""
        for name, values in _layouts():
            expected = np.array(values)
            if self._backend.name != "numpy":
                expected = expected.astype(expected.dtype.newbyteorder("="))
            same(
                self.read(convert(values, self._backend)),
                expected,
                f"from_numpy(), for a NumPy array that was {name} before it was made ready",
                "Read the memory of the argument of from_numpy() by its shape and strides, as numpy.asarray does.",
            )

    def test_sources_are_not_changed(self) -> None:
        """No conversion changes its source, in the library or in NumPy."""
        values = _sample(np.dtype("float32"), (2, 3))
        array = self.make(values)
        for method in ("to_numpy", "copy"):
            self._call(method, array, what="for an ordinary array")
            same(
                self.read(array),
                values,
                f"the array, after {method}() was called with it",
                f"Change {method}() so that it leaves its argument as it is.",
            )
        convert(array, "numpy", copy=True)
        same(
            self.read(array),
            values,
            "the array, after it was converted",
            "Change to_numpy() and copy() so that they leave their argument as it is.",
        )
        memory = values.copy()
        taken = memory.view()
        fix = "Change from_numpy() so that it leaves its argument as it is: call x.copy() or x.view() first"
        self._from_numpy(taken, "for an ordinary array")
        convert(taken, self._backend, copy=True)
        same(memory, values, "the NumPy array, after it was converted", f"{fix}.")
        assert taken.shape == values.shape, f"the shape of the NumPy array changed. {fix}"
        assert taken.strides == values.strides, f"the strides of the NumPy array changed. {fix}"
        assert taken.flags.writeable, f"the NumPy array became read-only. {fix}"

    def test_arrays_with_more_than_values_are_refused(self) -> None:
        """Arrays that hold more than values raise a `ConversionError` with a reason and a remedy."""
        for array, word in self.unportable():
            other = "numpy" if self._backend.name != "numpy" else "torch"
            what = f"a {describe_type(array)} with more than values ({word})"
            try:
                _api.convert({"x": array}, other, sparse="raise")
            except ConversionError as error:
                text, remedy = str(error), error.remedy
            else:
                raise AssertionError(
                    f"{what} was converted, so something was lost. Raise arrayferry.ConversionError(reason, "
                    "remedy=...) from to_numpy()"
                )
            assert word in text, (
                f"the error for {what} does not mention it: {text}. Change the reason of the ConversionError that "
                "to_numpy() raises"
            )
            assert remedy, (
                f"the error for {what} has no remedy: {text}. Pass remedy= to the ConversionError that to_numpy() "
                "raises: what to call first"
            )
            assert "['x']" in text, f"the error for {what} does not name the place: {text}"

    def test_sparse_arrays(self) -> None:
        """`is_sparse` is true or false, and `to_dense` returns the values of sparse arrays."""
        values = _sample(np.dtype("float32"), (2, 3))
        array = self.make(values)
        found = self._call("is_sparse", array, what="for an ordinary array")
        assert found is True or found is False, (
            f"is_sparse() returned {found!r}. Return True or False from is_sparse(x)"
        )
        if found:
            dense = self._call("to_dense", array, what="for an ordinary array")
            if not isinstance(dense, np.ndarray):
                self._recognised(dense, "to_dense()")
                still = self._backend.is_sparse(dense)
                assert not still, f"to_dense() returned a sparse array. {_OWED['to_dense']}"
                dense = self._to_numpy(dense, "for what to_dense() returned")
            same(dense, values, "to_dense()", _OWED["to_dense"])

    # Dtypes.

    def test_missing_dtypes_follow_the_narrowing_rule(self) -> None:
        """A missing dtype becomes the widest of its kind, and numbers are never lost silently."""
        supported = self._backend.dtypes()
        if supported is None:
            return
        for name, number in (("int64", 2**40), ("uint64", 2**60), ("float64", 1e300)):
            values = np.array([number], dtype=name)
            if name in supported:
                same(
                    self.read(convert(values, self._backend)),
                    values,
                    f"from_numpy(), for {number:g} of dtype {name}",
                    f"Leave {name!r} out of dtypes(), or keep it in from_numpy().",
                )
                continue
            try:
                found = self.read(convert(values, self._backend))
            except ConversionError:
                pass
            else:
                raise AssertionError(
                    f"{number:g} of dtype {name} became {found} of dtype {found.dtype}. Return from dtypes() only what "
                    "the arrays of the library can have now"
                )
            with contextlib.suppress(UnsupportedDtypeError):
                small = np.array([3], dtype=name)
                found = self.read(convert(small, self._backend))
                fix = "Change from_numpy() to keep the dtype of its argument, which dtypes() names"
                assert found.dtype.kind == small.dtype.kind, f"{name} became {found.dtype}. {fix}"
                assert found.tolist() == [3], f"3 of dtype {name} became {found}. {fix}"

    def test_text_is_refused_or_kept(self) -> None:
        """Text that the backend does not support is refused, or kept on request."""
        text = np.array(["a", "b"])
        if self._backend.dtypes() is None:
            return
        fix = "Return from dtypes() the names of the dtypes that arrays can have, or None if that is all of NumPy's"
        try:
            found = convert(text, self._backend)
        except UnsupportedDtypeError:
            pass
        else:
            raise AssertionError(f"text became a {describe_type(found)}. {fix}")
        kept = convert(text, self._backend, unsupported="keep")
        assert kept is text, f'unsupported="keep" made a {describe_type(kept)} of text. {fix}'

    # Memory.

    def test_copy_true_copies(self) -> None:
        """With `copy=True`, a write to one array is never seen in the other."""
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            array = convert(memory, self._backend, copy=True)
            memory[:] = -1
            same(
                self.read(array),
                values,
                f"copy=True from numpy, {case}: NumPy was written to, and the array changed",
                "Set from_numpy_shares to None or True, or copy in from_numpy().",
            )
            array = self.make(values)
            out = convert(array, "numpy", copy=True)
            assert out.flags.writeable, (
                f"copy=True to numpy returned a read-only array, {case}. Set to_numpy_shares to None or True, or "
                "return a writable copy from to_numpy()"
            )
            out[:] = -1
            same(
                self.read(array),
                values,
                f"copy=True to numpy, {case}: NumPy was written to, and the array changed",
                "Set to_numpy_shares to None or True, or copy in to_numpy().",
            )
            again = convert(array, self._backend, copy=True)
            if self._writable:
                self.write(again, -1)
                same(
                    self.read(array),
                    values,
                    f"copy=True within the library, {case}: the copy was written to, and the array changed",
                    "Return from copy(x) an array in memory of its own.",
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
            what = f"NumPy was written to, and an array changed whose memory is {self._backend.memory!r}"
            same(
                self.read(array),
                values,
                f"from numpy, {case}: {what}",
                "Copy in from_numpy(), or set from_numpy_shares to None or True.",
            )
            array = self.make(values)
            out = convert(array, "numpy")
            if out.flags.writeable:
                out[:] = -1
            same(
                self.read(array),
                values,
                f"to numpy, {case}: {what}",
                "Return a read-only view from to_numpy(), or a copy; set to_numpy_shares to None or True if it is a "
                "view.",
            )

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
                assert not array.flags.writeable, "a read-only NumPy array became writable"
                continue
            self.write(array, -1)
            same(
                memory,
                values,
                f"read-only NumPy memory, {case}: the array was written to, and the memory changed",
                "Set from_numpy_shares to None or True, or copy in from_numpy().",
            )

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
                "'immutable', or write write(self, array, value) in the test"
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
            out = self._to_numpy(array, case)
            if self._backend.to_numpy_shares is False and out.flags.writeable:
                out[:] = -1
                same(
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
            array = self._from_numpy(memory, case)
            memory[:] = -1
            if self._backend.from_numpy_shares is False:
                same(
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
                assert (self.read(array) == -1).all(), (
                    f"copy=False from numpy copied, {case}: set from_numpy_shares to None or False"
                )
            array = self.make(memory.copy())
            try:
                out = convert(array, "numpy", copy=False)
            except CopyRequiredError:
                continue
            if self._writable:
                self.write(array, -2)
                assert (out == -2).all(), (
                    f"copy=False to numpy copied, {case}: set to_numpy_shares to None or False"
                )

    def test_results_outlive_their_sources(self) -> None:
        """A result is still correct after its source is deleted and the memory may be reused."""
        gc.freeze()  # what exists now is not looked through each time
        try:
            self._check_lifetimes()
        finally:
            gc.unfreeze()

    def _check_lifetimes(self) -> None:
        for size, aligned, case in self._memory_cases():
            memory = self._floats(size, aligned)
            values = memory.copy()
            into = convert(memory, self._backend)
            source = self.make(values)
            out = convert(source, "numpy")
            del memory, source
            gc.collect()
            filler = [np.full(size, -9, np.float32) for _ in range(8)]
            same(
                self.read(into),
                values,
                f"from numpy, {case}: the NumPy array was deleted, and the result changed",
                "Copy in from_numpy(), or keep a reference to its argument in the result.",
            )
            same(
                out,
                values,
                f"to numpy, {case}: the array was deleted, and the result changed",
                "Copy in to_numpy(), or return a view whose base keeps the array alive.",
            )
            del filler

    # Devices.

    def test_arrays_are_on_the_requested_device(self) -> None:
        """Arrays can be put on each of `devices()`, and `device_of` names that device."""
        values = _sample(np.dtype("float32"), (3,))
        devices = list(self._backend.devices())
        fix = 'Return from devices() names such as ("cpu", "cuda:0"), the default first'
        assert devices, f"devices() is empty. {fix}"
        assert all(isinstance(device, str) for device in devices), (
            f"devices() returned {devices}. {fix}"
        )
        default = self._call("default_device", what="")
        assert default in devices, (
            f"default_device() returned {default!r}, which is not one of devices() {devices}. Return the device of new arrays"
        )
        for device in devices:
            array = convert(values, self._backend, device=device)
            found = self._call("device_of", array, what=f"for an array that was made on {device}")
            assert found == device, (
                f"from_numpy(x, {device!r}) was called, but device_of() returned {found!r}. {_FIX_DEVICE}"
            )
            same(self.read(array), values, f"from_numpy(x, {device!r})", _OWED["from_numpy"])
            moved = convert(array, self._backend, device=devices[0])
            found = self._backend.device_of(moved)
            assert found == devices[0], (
                f"an array was moved from {device} to {devices[0]}, but device_of() returned {found!r}. {_FIX_DEVICE}"
            )
            copied = convert(array, self._backend, copy=True)
            found = self._backend.device_of(copied)
            assert found == device, (
                f"copy=True moved an array from {device} to {found}. Return from copy(x) an array on the device of x"
            )

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
                rng = self._call("random", seed, what=f"for the seed {seed}")
                both = [getattr(rng, name)((50, 4), *bounds[name]) for _ in range(2)]
                drawn.append(np.stack([np.asarray(backend.to_numpy(x)) for x in both]))
            low, high = bounds[name]
            call = f"random(seed).{name}((50, 4), {low}, {high})"
            fix = f"Change {name}() of what random() returns"
            same(
                drawn[1],
                drawn[0],
                f"{call}, with the same seed twice",
                f"{fix}: use the seed alone.",
            )
            assert not np.array_equal(drawn[0], drawn[2]), (
                f"{call} gives the same for two seeds. {fix}: use the seed"
            )
            assert not np.array_equal(drawn[0][0], drawn[0][1]), (
                f"{call} gives the same twice in a row. {fix}: advance its state"
            )
            shape, dtype = drawn[0].shape[1:], drawn[0].dtype
            assert shape == (50, 4), f"{call} has the shape {shape}. {fix}: return that shape"
            assert dtype == dtypes[name], (
                f"{call} has the dtype {dtype}. {fix}: return {dtypes[name]} where no dtype is given"
            )
            self._check_range(name, drawn[0], low, high, f"{call} gives {{}}. {fix}: {{}}")
        if "integers" in names:
            logits = backend.from_numpy(np.array([0.0, 3.0, -100.0], np.float32))
            found = np.asarray(backend.to_numpy(backend.random(1).categorical((500,), logits)))
            chosen = sorted(set(found.tolist()))
            share = float((found == 1).mean())
            text = (
                f"random(seed).categorical((500,), [0, 3, -100]) gives {chosen}, and 1 in {share:.0%} instead of 95%. "
                "Change categorical() of what random() returns: draw indices with probabilities proportional to exp(logits)"
            )
            assert chosen == [0, 1], text
            assert 0.85 < share < 1.0, text

    def _check_range(
        self, name: str, drawn: np.ndarray[Any, Any], low: float, high: float, text: str
    ) -> None:
        if name == "normal":
            mean, deviation = drawn.mean(), drawn.std()
            found = f"a mean of {mean:.3g} and a deviation of {deviation:.3g}"
            text = text.format(found, f"use the mean {low:g} and the deviation {high:g}")
            assert abs(mean) < 0.3, text
            assert 0.8 < deviation < 1.2, text
            return
        least, most = drawn.min(), drawn.max()
        text = text.format(
            f"numbers from {least:g} to {most:g}",
            f"draw from {low:g} on, up to but without {high:g}",
        )
        last = high - 1 if name == "integers" else high  # a float32 may be rounded up to the end
        assert low <= least < low + 0.1 * (high - low), text
        assert high - 0.3 * (high - low) < most <= last, text

    # Many arrays at once, pairs, pickling and warnings.

    def test_to_numpy_many_matches_to_numpy(self) -> None:
        """`to_numpy_many` returns what `to_numpy` returns for each array."""
        arrays = [self.make(_sample(np.dtype("float32"), shape)) for shape in SHAPES]
        found = list(self._call("to_numpy_many", arrays, what=f"for {len(arrays)} arrays"))
        assert len(found) == len(arrays), (
            f"to_numpy_many() returned {len(found)} for {len(arrays)} arrays. {_OWED['to_numpy_many']}"
        )
        for index, (array, out) in enumerate(zip(arrays, found, strict=True)):
            what = f"to_numpy_many(), for array {index} of {len(arrays)}"
            same(np.asarray(out), self._backend.to_numpy(array), what, _OWED["to_numpy_many"])

    def test_dlpack(self) -> None:
        """Arrays on the CPU are exchanged by DLPack, if `dlpack_devices` says so."""
        if "cpu" not in self._backend.dlpack_devices:
            return
        values = _sample(np.dtype("float32"), (2, 3))
        exported = self._call("to_dlpack", self.make(values), what="for an ordinary array")
        missing = [m for m in ("__dlpack__", "__dlpack_device__") if not hasattr(exported, m)]
        assert not missing, (
            f"to_dlpack() returned a {describe_type(exported)} without {' and '.join(missing)}. {_OWED['to_dlpack']}"
        )
        array = self._call("from_dlpack", exported, what="for what to_dlpack() returned")
        self._recognised(array, "from_dlpack()")
        same(self.read(array), values, "from_dlpack()", _OWED["from_dlpack"])

    def test_addresses(self) -> None:
        """`address` returns where the first element is."""
        array = self.make(self._floats(4).copy())
        address = self._call("address", array, what="for an ordinary array")
        if address is None or not self._backend.to_numpy_shares:
            return
        found = self._backend.to_numpy(array).ctypes.data
        assert address == found, (
            f"address() returned {address}, but the values are at {found}. {_OWED['address']}"
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
                    arrays = [convert(self._floats(n), source, copy=True) for n in lengths]
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
            f"{direct!r} {problem} for every ordinary array, so it is never used. Handle arrays of dtype float32 on the "
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
        try:
            found = backend_of(y).name
        except NotAnArrayError:
            found = "no known library"
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
        values = _sample(np.dtype("float32"), (2, 3))
        for other in self._others():
            there = convert({"x": [self.make(values), "text"]}, other)
            fix = "Change to_numpy(), or the converter of the plugin that returned it"
            found = backend_of(there["x"][0]).name
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
                same(_values(found.arrays[0]), values**3, f"the value in {where}", _FIX_AUTODIFF)
                for _ in range(2):
                    (gradient,) = pullback([ones])
                    same(
                        _values(gradient), 3 * values**2, f"the gradient of {where}", _FIX_AUTODIFF
                    )
                try:
                    _, pullback = function.transposed(1, (0,)).vjp([x, ones], (0,))
                except NotImplementedError:
                    continue
                (second,) = pullback([ones])
                same(
                    _values(second), 6 * values, f"the second derivative of {where}", _FIX_AUTODIFF
                )

    def test_conversions_can_be_pickled(self) -> None:
        """A conversion to the backend works after pickling."""
        values = _sample(np.dtype("float32"), (2,))
        if isinstance(self.backend, Backend):
            return
        again = pickle.loads(pickle.dumps(converter(self._backend.name)))
        same(self.read(again(values)), values, "a converter, after pickling", _OWED["from_numpy"])

    def test_conversions_do_not_warn(self) -> None:
        """An ordinary conversion emits no warning."""
        values = _sample(np.dtype("float32"), (4,))
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


class SourceContract(BlockTests):
    """The tests that every `Source` must pass. Name your subclass `Test...`.

    Attributes:
        source: the source under test, by name, or an instance, which is registered for the tests.
        dtypes: names of the dtypes to try.
        shapes: the shapes to try.

    Example:
        >>> import io, h5py
        >>> from arrayferry.testing import SourceContract
        >>> class TestH5py(SourceContract):
        ...     source = "h5py"
        ...     def make(self, values):
        ...         file = h5py.File(io.BytesIO(), "w")
        ...         return file.create_dataset("x", data=values)
        >>> TestH5py().test_to_numpy()
    """

    source: str | Source = ""
    dtypes: tuple[str, ...] = ("bool", "int32", "int64", "float32", "float64")
    shapes: tuple[tuple[int, ...], ...] = SHAPES

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an object from which these values are read, without the plugin. Required."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how an object is made. Write make(self, values): return an object of the "
            "library from which the values, the shape and the dtype of a NumPy array are read"
        )

    @property
    def _backend(self) -> Source:
        if isinstance(self.source, Source):
            return self.source
        named = [each for each in default_registry().sources() if each.name == self.source]
        if not named:
            raise NotImplementedError(
                f"{type(self).__name__} must name the source under test: source is {self.source!r}, and there is none "
                "of that name"
            )
        return named[0]

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with only_plugins(self._backend):
            known = default_registry().sources()
            with _usable(self._backend, register=self._backend not in known):
                yield

    def test_its_objects_are_recognised(self) -> None:
        """An object of the library is recognised by its type."""
        made = self.make(_sample(np.dtype("float32"), (2,)))
        found = default_registry().kind(made).source
        name = "nothing known" if found is None else found.name
        assert name == self._backend.name, (
            f"a {describe_type(made)} is recognised as {name}. Set array_types, which is {self._backend.array_types}, to "
            f"the dotted paths of the types that are read, such as ({describe_type(made)!r},)"
        )

    def test_to_numpy(self) -> None:
        """`to_numpy` returns the same values, shape and dtype, each time."""
        fix = "Return from to_numpy(x) a numpy.ndarray with the values, the shape and the dtype of x, and leave x as it is."
        for dtype in map(np.dtype, self.dtypes):
            for shape in self.shapes:
                values = _sample(dtype, shape)
                made = self.make(values)
                what = f"to_numpy(), for dtype {dtype.name} and shape {shape}"
                for _ in range(2):
                    try:
                        out = self._backend.to_numpy(made)
                    except Exception as error:
                        raise AssertionError(
                            f"{what}, raised {describe_error(error)}. {fix}"
                        ) from error
                    assert isinstance(out, np.ndarray), (
                        f"{what}, returned a {describe_type(out)}. {fix}"
                    )
                    same(out, values, what, fix)

    def test_memory_is_as_stated(self) -> None:
        """Memory of what never changes, or is read on demand, cannot be written to through NumPy."""
        values = _sample(np.dtype("float32"), self.shapes[-1])
        made = self.make(values)
        out = self._backend.to_numpy(made)
        shares, memory = self._backend.to_numpy_shares, self._backend.memory
        if out.flags.writeable and (shares is False or memory in ("immutable", "lazy")):
            out[...] = 0
            same(
                self._backend.to_numpy(made),
                values,
                f"memory is {memory!r} and to_numpy_shares is {shares}, but what to_numpy() returned was written to",
                "Set to_numpy_shares to None or True, and return a read-only view from to_numpy() unless memory is "
                "'writable'.",
            )

    def test_conversions(self) -> None:
        """Objects are converted to every built-in library, where they are the whole value."""
        values = _sample(np.dtype("float32"), self.shapes[-1])
        for backend in default_registry().backends().values():
            if is_built_in(backend) and backend.usable:
                found = convert(self.make(values), backend)
                same(_values(found), values, f"to {backend.name}", "Change to_numpy().")


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


def _is_of_ml_dtypes(name: str) -> bool:
    """Tell whether a name can be that of a dtype of ml_dtypes, which may not be installed."""
    return name.startswith(
        ("bfloat", "float8", "float6", "float4", "int2", "int4", "uint2", "uint4")
    )


def _values(x: Any) -> Any:
    return convert(x, "numpy")


def __dir__() -> list[str]:
    return sorted(__all__)
