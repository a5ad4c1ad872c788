"""Base classes of the tests of the contract kit, with the methods that the author of a plugin fills in."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from arrayferry import _api
from arrayferry._errors import ContractError, ConversionError, NotAnArrayError, PluginWarning
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in
from arrayferry._registry.registry import default_registry

from .alone import find_backend, only_plugins, usable
from .checks import (
    DUTIES,
    FIX_DEVICE,
    TAKES_DEVICE,
    Values,
    ask,
    difference,
    kept,
    remedy,
    same,
    skip_if_lacking,
    stated_difference,
)
from .classes import describe_type, describe_value

_FIX_METHOD = (
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
            fix = _FIX_METHOD if error.method else FIX_DEVICE
            error.remedy = f"{error.duty} {fix}".lstrip()
        raise
    name = describe_type(converted)
    assert to != ("numpy",) or isinstance(converted, np.ndarray), (
        f"an array became a {name} instead of one of NumPy: its type is not recognised. Set array_types to the dotted paths "
        f"of the array types of the library{such_as(name)}"
    )
    return converted


def as_numpy(value: Any) -> Any:
    """Convert an array to NumPy."""
    return convert(value, "numpy")


def refused(value: Any, to: Any, what: str, fix: str, sparse: Any = "dense") -> ConversionError:
    """Assert that a value cannot be converted, and return the error."""
    try:
        converted = _api.convert(value, to, sparse=sparse)
    except ConversionError as error:
        return error
    raise AssertionError(f"{what} became {converted!r:.80}. {fix}")


def such_as(path: str, wrong: Sequence[str] = ()) -> str:
    """Return the end of a message: an example of a dotted path, or the problem if that path is there already."""
    if path not in wrong:
        return f", such as ({path!r},)"
    return f". {path!r} is there already, but nothing of that name can be imported, or another plugin has it"


def library_of(array: Any) -> str:
    """Return the name of the backend that an array is recognised to belong to."""
    try:
        return _api.backend_of(array).name
    except NotAnArrayError:
        return "no known library"


def all_same(found: Sequence[Any], expected: Sequence[Values], what: str, fix: str) -> None:
    """Assert that arrays of any known libraries have these values, in order."""
    assert len(found) == len(expected), (
        f"{what}, returned {len(found)} arrays instead of {len(expected)}. {fix}"
    )
    for index, (x, values) in enumerate(zip(found, expected, strict=True)):
        same_anywhere(x, values, f"{what}: array {index}", fix)


def same_anywhere(x: Any, values: Values, what: str, fix: str) -> None:
    """Assert that an array of any known library has these values."""
    assert library_of(x) != "no known library", (
        f"{what}: {describe_value(x)} is not an array of a known library. Return an array with its values"
    )
    same(as_numpy(x), values, what, fix)


def _takes_device(from_numpy: Any) -> bool:
    try:
        inspect.signature(from_numpy).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # it has no signature, as some functions in C
        pass
    return True


class Tested:
    """The base of all tests: the backend or source under test, and calls of its methods."""

    @property
    def _backend(self) -> Any:
        raise NotImplementedError

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an object of the library with these values."""
        raise NotImplementedError

    def _ask(self, method: str, *args: Any, case: str = "", **options: Any) -> Any:
        """Call a method of the backend or source under test. Assert that the result is of the right kind."""
        named = any(isinstance(x, str) for x in args)
        shown = [repr(x) if isinstance(x, (str, int)) else "x" for x in args] if named else ()
        call = f"{method}({', '.join(shown)})"
        duty = DUTIES[method]._replace(fix=self._fix(method))
        function = getattr(self._backend, method)
        return ask(function, *args, call=call, case=case, duty=duty, **options)

    def _fix(self, method: str) -> str:
        """Return the remedy if a method returns something wrong."""
        return DUTIES[method].fix

    def _gives_all(self, method: str, xs: Sequence[Any], expected: Sequence[Values]) -> Any:
        """Assert that a method for several arrays returns the values of each, and return its result."""
        case = f"for {len(xs)} arrays"
        found = self._ask(method, xs, case=case)
        all_same(found, expected, f"{method}(), {case}", self._fix(method))
        return found


class Given(NamedTuple):
    """An array to pass to a method.

    Attributes:
        x: the array.
        values: its values.
        case: a description for messages.
        hint: more advice for the author if the result is wrong.
        by_plugin: whether `from_numpy` of the plugin made the array.
    """

    x: Any
    values: Values
    case: str
    hint: str = ""
    by_plugin: bool = False


class BackendTests(Tested):
    """The base of the tests of a backend."""

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
        if self.others is None:
            others = [b for b in registry.backends().values() if is_built_in(b)]
        else:
            others = [registry.backend(name) for name in self.others]
        return [b for b in others if b.name != self._backend.name and b.usable]

    @property
    def _reads(self) -> bool:
        """Whether values are read without the plugin."""
        return type(self).read is not BackendTests.read

    def _fix_for(self, method: str, given: Given, found: str, actual: Any = None) -> str:
        """Return the remedy for what was found of the result of a method for an array."""
        either = given.by_plugin and not self._reads and method != "copy"
        return f"{remedy(method, found, actual, given.values, either=either)} {given.hint}".rstrip()

    def _gives(self, method: str, given: Given) -> Any:
        """Assert that a method returns an array of the same values, and return it."""
        y = self._call(method, given)
        if method != "to_numpy":
            self._recognised(y, f"{method}()")
        out = y if method == "to_numpy" else self.read(y)
        self._agree(method, given, difference(out, given.values), out)
        return y

    def _agree(self, method: str, given: Given, found: str, actual: Any = None) -> None:
        """Assert that no difference was found."""
        assert not found, (
            f"{method}(), {given.case}: {found}. {self._fix_for(method, given, found, actual)}"
        )

    def _call(self, method: str, given: Given) -> Any:
        """Call a method and return the array that it returns, which states the right dtype and shape if any."""
        x, what = given.x, f"{method}(), {given.case}"
        if method != "to_numpy":
            assert _takes_device(self._backend.from_numpy), TAKES_DEVICE
        unchanged = kept(x, f"the argument of {what}") if method == "from_numpy" else None
        raised = remedy(method, "raised", None, given.values)
        with unchanged or contextlib.nullcontext():
            y = self._ask(method, x, case=given.case, raised=raised)
        self._agree(
            method, given, "" if method == "to_numpy" else stated_difference(y, given.values)
        )
        return y

    def _warn_of_names(self) -> None:
        """Warn of attributes of the backend that are perhaps mistyped."""
        known = {*dir(Backend), *Origin.__annotations__}
        for name in dir(self._backend):
            meant = difflib.get_close_matches(name, known, 1, 0.8)
            if name not in known and not name.startswith("_") and meant:
                warnings.warn(
                    f"{type(self._backend).__name__} has an attribute {name!r}, which arrayferry does not know. Did you "
                    f"mean {meant[0]!r}? If it is your own, let its name begin with an underscore.",
                    PluginWarning,
                    stacklevel=3,
                )

    def _recognised(self, array: Any, who: str) -> None:
        """Assert that an array is recognised as one of the backend."""
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
