"""What the author of a plugin fills in, and what the tests of the contract kit share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arrayferry import _api
from arrayferry._api import backend_of
from arrayferry._errors import ConversionError, NotAnArrayError, describe_error
from arrayferry._plugin.backend import STANDARD_DTYPES, Backend
from arrayferry._registry.discovery import is_built_in
from arrayferry._registry.registry import default_registry
from arrayferry._route.dtypes import dtype_named

from .alone import find_backend, only_plugins
from .same import describe_type
from .samples import SIZES

__all__ = ["FIX_DEVICE", "OWED", "BackendTests", "as_numpy", "convert", "converter", "usable"]

OWED = {
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
FIX_DEVICE = (
    "Put the array on the device in from_numpy(x, device), return from to_device(x, device) an array on that device, and "
    "return its name from device_of(x), spelled as in devices()."
)
FIX_METHOD = (
    "Change that method so that it handles every ordinary array of the dtypes that dtypes() names."
)


def convert(value: Any, *to: Any, **options: Any) -> Any:
    """Convert as users do; arrays of a sparse library are made dense.

    Raises:
        AssertionError: an array was not recognised, and so was not converted.
    """
    try:
        found = _api.convert(value, *to, sparse="dense", **options)
    except ConversionError as error:
        if error.remedy.endswith("to the author of the plugin."):  # who is the reader here
            fix = FIX_DEVICE if " put an array on " in error.reason else FIX_METHOD
            head, stop, _ = error.remedy.rpartition(". ")
            error.remedy = f"{head}{stop}{fix}"
        raise
    if to == ("numpy",) and not isinstance(found, np.ndarray):
        name = describe_type(found)
        raise AssertionError(
            f"an array became a {name} instead of one of NumPy: its type is not recognised. Set array_types to the dotted "
            f"paths of the array types of the library, such as ({name!r},)"
        )
    return found


def as_numpy(value: Any) -> Any:
    """Convert an array to NumPy."""
    return convert(value, "numpy")


def converter(*to: Any, **options: Any) -> Any:
    """Make a conversion that does the same."""
    return _api.converter(*to, sparse="dense", **options)


@contextlib.contextmanager
def usable(part: Any, *, register: bool) -> Iterator[None]:
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


class BackendTests:
    """What tests of a backend are built on."""

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
            with usable(self._backend, register=own and known is not self.backend):
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
            case = f", {what}," if what else ""
            told = describe_error(error).rstrip(" .")
            owed = "" if isinstance(error, NotImplementedError) and str(error) else OWED[method]
            raise AssertionError(f"{method}(){case} raised {told}. {owed}".rstrip()) from error

    def _to_numpy(self, array: Any, what: str) -> Any:
        out = self._call("to_numpy", array, what=what)
        assert isinstance(out, np.ndarray), (
            f"to_numpy(), {what}, returned a {describe_type(out)}. {OWED['to_numpy']}"
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
