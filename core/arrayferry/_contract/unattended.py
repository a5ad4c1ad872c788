"""The contract kit without the author of a plugin: the library itself makes the arrays where that works."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arrayferry._errors import describe_error
from arrayferry._plugin.backend import Backend
from arrayferry._registry.registry import default_registry

from .base import OWED
from .same import describe_value, same
from .values import ValueTests

__all__ = ["Unattended"]

PLUGIN = "from_numpy() of the plugin"
FEW: Any = [[1, 0, 1], [0, 1, 0]]
FOR_FEW = f"for an array of {FEW}"


class Unattended(ValueTests):
    """What an author would fill in, and first tests with a few numbers.

    Attributes:
        ways: how arrays were made, and for which dtypes.
    """

    def __init__(self) -> None:
        self.ways: dict[str, set[str]] = {}

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an array by the library itself, by the plugin if that fails."""
        tested = self._backend
        for way, function in _makers(tested):
            try:
                array = function(values.copy())
                seen = _seen_by_numpy(array)
            except Exception:
                continue
            if _backend_name(array) not in (None, tested.name):
                continue  # the module may have imported NumPy's function
            alike = seen.shape == values.shape and seen.dtype == values.dtype
            if alike and seen.tobytes() == values.tobytes():
                self.ways.setdefault(way, set()).add(values.dtype.name)
                return array
        self.ways.setdefault(PLUGIN, set()).add(values.dtype.name)
        case = f"for an array of dtype {values.dtype.name} and shape {values.shape}"
        return self._call("from_numpy", values.copy(), what=case)

    def write(self, array: Any, value: float) -> None:
        """Write a value to every element, in one of the usual ways."""
        for write in (_by_index, _by_fill, _by_data):
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
        self._call("from_numpy", np.array(FEW, self._usual()), what=FOR_FEW)

    def try_its_arrays_are_recognised(self) -> None:
        """See `test_its_arrays_are_recognised`."""
        self._recognised(self._one(), next(iter(self.ways)))

    def try_to_numpy(self) -> None:
        """See `test_to_numpy`."""
        array, values = self._one(), np.array(FEW, self._usual())
        module = type(array).__module__.partition(".")[0]
        if module == "builtins" or _backend_name(array) not in (None, self._backend.name):
            pytest.skip(f"there is no array to try it with, but {describe_value(array)}")
        fix = OWED["to_numpy"]
        if PLUGIN in self.ways:
            fix = f"Either to_numpy() or from_numpy() is wrong. {fix} {OWED['from_numpy']}"
        same(self._to_numpy(array, FOR_FEW), values, f"to_numpy(), {FOR_FEW}", fix)

    def _one(self) -> Any:
        try:
            return self.make(np.array(FEW, self._usual()))
        except Exception as error:
            pytest.skip(f"there is no array to try it with: {describe_error(error)}")


def _backend_name(array: Any) -> str | None:
    """Return the name of the backend of an array, None if it has none."""
    kind = default_registry().kind(array)
    return None if kind.backend is None else kind.backend.name


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


def _by_index(array: Any, value: float) -> None:
    array[...] = value


def _by_fill(array: Any, value: float) -> None:
    array.fill(value)


def _by_data(array: Any, value: float) -> None:
    array.data[...] = value
