"""The contract kit without test code by the plugin's author. The library itself makes the arrays if possible."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from arrayferry.typing import AnyArray

from .arrays import BackendTests
from .calls import UNKNOWN, library_of
from .checks import difference, stated_difference
from .samples import case_of

PLUGIN = "from_numpy() of the plugin"


class Unattended(BackendTests):
    """The methods `make` and `write` for any backend, so that the author of the plugin need not write them.

    Attributes:
        ways: maps the name of each function that made arrays to the names of the dtypes of these arrays.
    """

    ways: ClassVar[dict[str, set[str]]]

    def make(self, values: np.ndarray[Any, Any]) -> Any:
        """Make an array with a function of the library, or with the plugin if no function returns the right values."""
        dtype_name = values.dtype.name
        module = importlib.import_module(self.tested.namespace or self.tested.package)
        for name in ("asarray", "array", "constant"):
            with contextlib.suppress(Exception):
                array = getattr(module, name)(values.copy())
                seen_values = np.asarray(array.compute() if hasattr(array, "compute") else array)
                # a module may export NumPy's own function, which returns arrays of NumPy
                is_own_array = library_of(array) in (UNKNOWN, self.tested.name)
                if is_own_array and not difference(seen_values, values):
                    self.ways.setdefault(f"{module.__name__}.{name}()", set()).add(dtype_name)
                    return array
        self.ways.setdefault(PLUGIN, set()).add(dtype_name)
        case = case_of(values)
        array = self.ask("from_numpy", values.copy(), None, case=case)
        # do not compare values: to_numpy(), which reads them, may be the faulty method
        mismatch = stated_difference(array, values)
        assert not mismatch, f"from_numpy(), for {case}: {mismatch}"
        return array

    def write(self, array: AnyArray, value: float) -> None:
        """Write a value to every element by `x[...] = value`, `x.fill` or `x.data`. Skip the test if all fail."""
        write_functions: list[Callable[[], object]] = [
            lambda: array.__setitem__(..., value),
            lambda: array.fill(value),
            lambda: array.data.__setitem__(..., value),
        ]
        for write in write_functions:
            with contextlib.suppress(Exception):
                write()
                if bool((self.read(array) == value).all()):
                    return
        pytest.skip(
            "not tested: whether memory is shared as stated, since it is not known how arrays are written to. Write a "
            "BackendContract with the method write(), or set memory to 'immutable' if arrays never change"
        )
