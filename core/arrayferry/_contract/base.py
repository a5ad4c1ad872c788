"""What the author of a plugin fills in, and what the tests of the contract kit share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from arrayferry import _api
from arrayferry._api import backend_of
from arrayferry._errors import ContractError, ConversionError, NotAnArrayError, describe_error
from arrayferry._plugin.backend import Backend
from arrayferry._registry.discovery import is_built_in
from arrayferry._registry.registry import default_registry

from .alone import find_backend, only_plugins
from .lacking import lacking
from .same import describe_type, describe_value

__all__ = [
    "FIX_DEVICE",
    "KEEP",
    "OWED",
    "STRIDES",
    "BackendTests",
    "Tested",
    "as_numpy",
    "convert",
    "converter",
    "library_of",
    "skip_if_lacking",
    "such_as",
    "usable",
]

_DTYPES = "def dtypes(self): return arrayferry.STANDARD_DTYPES - {...}"
OWED = {
    "to_numpy": "Return from to_numpy(x) a numpy.ndarray with the values, the shape and the dtype of x, or leave the dtype "
    f"out of dtypes(): {_DTYPES}.",
    "from_numpy": "Return from from_numpy(x) an array of the library with the values, the shape and the dtype of x, or "
    f"leave the dtype out of dtypes(): {_DTYPES}.",
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
    "default_device": "Return the device of new arrays, one of devices().",
    "dtype_hint": "Return from dtype_hint(dtype) a sentence, or an empty text.",
    "fence": "Return from fence(x) a function without arguments that returns True or False, or None.",
    "is_on": "Return from is_on(x, device) whether x is on that device.",
    "is_out_of_memory": "Return from is_out_of_memory(error) whether memory ran out, without raising.",
    "place_of": "Return from place_of(x) what puts another array where x is, such as the name of its device.",
    "use_device": "Return from use_device(device) a context manager, such as contextlib.nullcontext().",
    "random": "Return an arrayferry.Random from random(seed, device).",
}
"""What each method has to return, for messages."""
FIX_DEVICE = (
    "Put the array on the device in from_numpy(x, device), return from to_device(x, device) an array on that device, and "
    "return its name from device_of(x), spelled as in devices()."
)
KEEP = (
    "Change from_numpy() so that it leaves its argument as it is: call x.copy() or x.view() first."
)
STRIDES = "Read its memory by its shape and strides, as numpy.asarray does."
FIX_METHOD = (
    "Change that method so that it handles every ordinary array of the dtypes that dtypes() names."
)


def convert(value: Any, *to: Any, **options: Any) -> Any:
    """Convert as users do; arrays of a sparse library are made dense.

    Raises:
        AssertionError: an array was not recognised, and so was not converted.
    """
    try:
        converted = _api.convert(value, *to, sparse="dense", **options)
    except ConversionError as error:
        if isinstance(error.__cause__, Exception):
            skip_if_lacking(error)
        if isinstance(error, ContractError):  # the reader is the author of the plugin
            fix = FIX_METHOD if error.method else FIX_DEVICE
            error.remedy = f"{error.duty} {fix}".lstrip()
        raise
    if to == ("numpy",) and not isinstance(converted, np.ndarray):
        name = describe_type(converted)
        raise AssertionError(
            f"an array became a {name} instead of one of NumPy: its type is not recognised. Set array_types to the dotted "
            f"paths of the array types of the library{such_as(name)}"
        )
    return converted


def skip_if_lacking(error: BaseException) -> None:
    """Skip the test if the library lacks a device or a compiler here, which is not the fault of its plugin."""
    told = lacking(error)
    if told:
        pytest.skip(f"not tested: the library lacks something here ({told})")


def such_as(path: str, wrong: Sequence[str] = ()) -> str:
    """Return the end of a message: an example of a dotted path, or what is wrong if that path is there already."""
    if path not in wrong:
        return f", such as ({path!r},)"
    return f". {path!r} is there already, but nothing of that name can be imported, or another plugin has it"


def library_of(array: Any) -> str:
    """Return the name of the backend that an array is recognised to belong to."""
    try:
        return backend_of(array).name
    except NotAnArrayError:
        return "no known library"


def as_numpy(value: Any) -> Any:
    """Convert an array to NumPy."""
    return convert(value, "numpy")


def converter(*to: Any, **options: Any) -> Any:
    """Make a conversion that does the same as `convert`."""
    return _api.converter(*to, sparse="dense", **options)


@contextlib.contextmanager
def usable(part: Any, *, register: bool) -> Iterator[None]:
    """Register a part during a test if needed, and skip the test if the library cannot be used here."""
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


class Tested:
    """What is under test, and makes objects of its library."""

    @property
    def _backend(self) -> Any:
        raise NotImplementedError

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an object with these values."""
        raise NotImplementedError

    def deferred(self, values: np.ndarray[Any, Any]) -> list[Any]:
        """Return deferred values that are computed to an array with these values."""
        return []


class BackendTests(Tested):
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
        try:
            array[...] = value
        except TypeError as error:
            raise AssertionError(
                f"arrays cannot be written to by array[...] = value ({error}). Define write(array, value) in the class "
                "of the tests, or set memory = 'immutable' if they never change"
            ) from error

    def unportable(self) -> list[tuple[Any, str]]:
        """Return arrays that hold more than values, each with a word that its error must contain."""
        return []

    def deferred(self, values: np.ndarray[Any, Any]) -> list[Any]:
        """Return a value of each of `deferred_types` whose result is an array with these values.

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

    def _others(self) -> list[Backend]:
        registry = default_registry()
        mine = self._backend.name
        if self.others is not None:
            return [b for b in map(registry.backend, self.others) if b.name != mine and b.usable]
        known = registry.backends().items()
        return [b for name, b in known if name != mine and is_built_in(b) and b.usable]

    def _call(self, method: str, *args: Any, what: str) -> Any:
        """Call a method of the backend. If it raises, say what it must return."""
        try:
            return getattr(self._backend, method)(*args)
        except Exception as error:
            skip_if_lacking(error)
            case = f", {what}," if what else ""
            told = describe_error(error).rstrip(" .")
            owed = "" if isinstance(error, NotImplementedError) and str(error) else OWED[method]
            raise AssertionError(f"{method}(){case} raised {told}. {owed}".rstrip()) from error

    def _to_numpy(self, array: Any, what: str) -> Any:
        out = self._call("to_numpy", array, what=what)
        plain = type(out) is np.ndarray or (
            self._backend.name == "numpy" and isinstance(out, np.ndarray)
        )
        assert plain, f"to_numpy(), {what}, returned {describe_value(out)}. {OWED['to_numpy']}"
        return out

    def _from_numpy(self, values: np.ndarray[Any, Any], what: str) -> Any:
        array = self._call("from_numpy", values, what=what)
        self._recognised(array, "from_numpy()")
        return array

    def _recognised(self, array: Any, who: str) -> None:
        """Check that an array is recognised as one of the backend."""
        mine, library = self._backend, library_of(array)
        if library == mine.name:
            return
        text = f"{who} returned {describe_value(array)}, which is recognised as an array of {library}, not of {mine.name}"
        if library != "no known library" or type(array).__module__ == "builtins":
            raise AssertionError(f"{text}. Return from {who} an array of {mine.package}")
        raise AssertionError(
            f"{text}. Set array_types, which is {mine.array_types}, to the dotted paths of the array types of the library"
            f"{such_as(describe_type(array), mine.array_types)}, or return an array of such a type"
        )

    @property
    def _writable(self) -> bool:
        return self._backend.memory == "writable"
