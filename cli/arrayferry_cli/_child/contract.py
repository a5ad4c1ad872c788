"""Task: the contract kit on a backend, as far as it can be run without its author."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from arrayferry import ArrayFerryError, Backend, registry
from arrayferry._errors import describe_error

__all__ = ["answer"]

PLUGIN = "from_numpy() of the plugin"
DIRECT = "test_direct_converters_match_the_general_path"


def answer(name: str, done: list[str], only_direct: bool) -> Iterator[dict[str, Any]]:
    """Yield the names of the tests, what is to be known, and the beginning and the outcome of each test.

    Args:
        name: the name of a backend.
        done: tests to leave out.
        only_direct: whether only direct converters are tested.
    """
    try:
        import pytest
    except ImportError:
        yield {"error": "the contract kit needs pytest. Run: pip install pytest", "usage": False}
        return
    try:
        backend = registry.backend(name)
        problem = backend.problem()
        if problem is not None:
            raise problem
    except ArrayFerryError as error:
        yield {"error": str(error), "usage": isinstance(error, LookupError)}
        return
    contract = _contract(backend)
    found = [test for test in dir(contract) if test.startswith("test_")]
    tests = [test for test in found if test == DIRECT or not only_direct]
    yield {"tests": {test: _purpose(getattr(contract, test)) for test in tests}}
    for test in tests:
        if test in done:
            continue
        yield {"begin": test}
        outcome, message = "passed", ""
        try:
            getattr(contract, test)()
        except pytest.skip.Exception as error:
            outcome, message = "skipped", str(error)
        except AssertionError as error:
            outcome, message = "failed", str(error) or "an assertion failed"
        except Exception as error:
            own = isinstance(error, ArrayFerryError)
            outcome, message = "failed", str(error) if own else describe_error(error)
        yield {"test": test, "outcome": outcome, "message": message}
    yield {"ways": {way: sorted(dtypes) for way, dtypes in sorted(contract.ways.items())}}


def _purpose(test: Any) -> str:
    return (test.__doc__ or "").partition("\n")[0]


def _contract(tested: Backend) -> Any:
    import numpy as np
    import pytest

    from arrayferry.testing import BackendContract

    class Contract(BackendContract):
        """Makes arrays by the library itself where it can be seen that this works."""

        backend = tested.name
        ways: dict[str, set[str]] = {}

        def make(self, values: np.ndarray[Any, Any]) -> Any:
            for way, function in _makers(tested):
                try:
                    array = function(values.copy())
                    found = _seen_by_numpy(array)
                except Exception:
                    continue
                same = found.shape == values.shape and found.dtype == values.dtype
                if same and found.tobytes() == values.tobytes():
                    self.ways.setdefault(way, set()).add(values.dtype.name)
                    return array
            self.ways.setdefault(PLUGIN, set()).add(values.dtype.name)
            return tested.from_numpy(values.copy())

        def write(self, array: Any, value: float) -> None:
            for write in (_by_index, _by_fill, _by_data):
                try:
                    write(array, value)
                    if bool((self.read(array) == value).all()):
                        return
                except Exception:
                    continue
            pytest.skip(
                "not tested: whether memory is shared as stated, since it is not known how arrays are written to. Test "
                "it with BackendContract and write(), or set memory to 'immutable' if they cannot be"
            )

    return Contract()


def _makers(backend: Backend) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(backend.namespace or backend.package)
    for name in ("asarray", "array", "constant"):
        function = getattr(module, name, None)
        if callable(function):
            yield f"{module.__name__}.{name}()", function


def _seen_by_numpy(array: Any) -> Any:
    import numpy as np

    found = np.asarray(array.compute() if hasattr(array, "compute") else array)
    if found.dtype == object:
        raise TypeError("NumPy does not know this array")
    return found


def _by_index(array: Any, value: float) -> None:
    array[...] = value


def _by_fill(array: Any, value: float) -> None:
    array.fill(value)


def _by_data(array: Any, value: float) -> None:
    array.data[...] = value
