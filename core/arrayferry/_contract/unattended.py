"""The contract kit without the author of a plugin: the library itself makes the arrays where that works."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from arrayferry._errors import describe_error
from arrayferry._plugin.backend import Backend

from .base import Given, library_of
from .checks import difference
from .classes import describe_value
from .values import ValueTests

PLUGIN = "from_numpy() of the plugin"
FEW: Any = [[1, 0, 1], [0, 1, 0]]
FOR_FEW = f"for an array of {FEW}"


class Unattended(ValueTests):
    """The methods that an author would fill in, and first tests with a few numbers.

    Attributes:
        ways: how arrays were made, and for which dtypes.
    """

    ways: ClassVar[dict[str, set[str]]]

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an array by the library itself, by the plugin if that fails."""
        tested = self._backend
        for way, function in _makers(tested):
            try:
                array = function(values.copy())
                seen = _seen_by_numpy(array)
            except Exception:
                continue
            if library_of(array) not in ("no known library", tested.name):
                continue  # the module may have imported NumPy's function
            if not difference(seen, values):
                self.ways.setdefault(way, set()).add(values.dtype.name)
                return array
        self.ways.setdefault(PLUGIN, set()).add(values.dtype.name)
        case = f"for an array of dtype {values.dtype.name} and shape {values.shape}"
        return self._call("from_numpy", Given(values.copy(), values, case))

    def _fix_for(self, method: str, given: Given, found: str, actual: Any = None) -> str:
        made = PLUGIN in self.ways and method == "to_numpy"
        given = given._replace(by_plugin=given.by_plugin or made)
        return super()._fix_for(method, given, found, actual)

    def write(self, array: Any, value: float) -> None:
        """Write a value to every element, in one of the usual ways."""
        for write in _WRITES:
            try:
                write(array, value)
                if bool((self.read(array) == value).all()):
                    return
            except Exception:
                continue
        pytest.skip(
            "not tested: whether memory is shared as stated, since it is not known how arrays are written to. Test "
            "it with BackendContract and write(), or set memory to 'immutable' if they never change"
        )

    # The tests that others build on, with a few numbers.

    def try_array_types_exist(self) -> None:
        """See `test_array_types_exist`."""
        self.test_array_types_exist()

    def try_from_numpy(self) -> None:
        """See `test_from_numpy`."""
        values = np.array(FEW, self._usual())
        self._call("from_numpy", Given(values.copy(), values, FOR_FEW))

    def try_its_arrays_are_recognised(self) -> None:
        """See `test_its_arrays_are_recognised`."""
        self._recognised(self._one(), next(iter(self.ways)))

    def try_to_numpy(self) -> None:
        """See `test_to_numpy`."""
        array = self._one()
        module = type(array).__module__.partition(".")[0]
        if module == "builtins" or library_of(array) not in (
            "no known library",
            self._backend.name,
        ):
            pytest.skip(f"there is no array to try it with, but {describe_value(array)}")
        self._gives("to_numpy", Given(array, np.array(FEW, self._usual()), FOR_FEW))

    def _one(self) -> Any:
        try:
            return self.make(np.array(FEW, self._usual()))
        except Exception as error:
            pytest.skip(f"there is no array to try it with: {describe_error(error)}")


def _makers(backend: Backend) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(backend.namespace or backend.package)
    for name in ("asarray", "array", "constant"):
        function = getattr(module, name, None)
        if callable(function):
            yield f"{module.__name__}.{name}()", function


def _seen_by_numpy(array: Any) -> Any:
    values = np.asarray(array.compute() if hasattr(array, "compute") else array)
    if values.dtype == object:
        raise TypeError("NumPy does not know this array")
    return values


_WRITES: tuple[Callable[[Any, float], Any], ...] = (
    lambda array, value: array.__setitem__(..., value),
    lambda array, value: array.fill(value),
    lambda array, value: array.data.__setitem__(..., value),
)
"""The usual ways to write a value to every element."""
