"""Task: the contract kit on a backend, as far as it can be run without its author."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from arrayferry import ArrayFerryError, Backend, registry
from arrayferry._errors import describe_error

__all__ = ["answer"]

PLUGIN = "from_numpy() of the plugin"
FEW = [[1, 0, 1], [0, 1, 0]]
FOR_FEW = f"for an array of {FEW}"
ESSENTIAL = (
    "test_array_types_exist",
    "test_from_numpy",
    "test_its_arrays_are_recognised",
    "test_to_numpy",
)
DIRECT = "test_direct_converters_match_the_general_path"


def answer(name: str, done: list[str], tried: bool, only_direct: bool) -> Iterator[dict[str, Any]]:
    """Yield the names of the tests, what is to be known, and the beginning and the outcome of each test.

    The tests are run if a few numbers go in and come out, since most would fail for the same reason if not.

    Args:
        name: the name of a backend.
        done: tests to leave out.
        tried: whether a few numbers are known to go in and come out.
        only_direct: whether only direct converters are tested.
    """
    if importlib.util.find_spec("pytest") is None:
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
    # in the order in which pytest runs them
    found = {name: None for cls in reversed(type(contract).__mro__) for name in vars(cls)}
    tests = [
        test for test in found if test.startswith("test_") and (test == DIRECT or not only_direct)
    ]
    yield {"tests": {test: _purpose(getattr(contract, test)) for test in tests}}
    if not tried and not only_direct:
        broken = any(test in done for test in ESSENTIAL)
        for test in ESSENTIAL:
            if test not in done:
                yield {"begin": test}
                result = _outcome(lambda test=test: getattr(contract, f"try_{test[5:]}")())  # type: ignore[misc]
                if result["outcome"] == "failed":
                    broken = True
                    yield {"test": test, **result}
        if broken:
            return
    yield {"tried": True}
    for test in tests:
        if test not in done:
            yield {"begin": test}
            yield {"test": test, **_outcome(getattr(contract, test))}
    yield {"ways": {way: sorted(dtypes) for way, dtypes in sorted(contract.ways.items())}}


def _outcome(test: Callable[[], None]) -> dict[str, str]:
    """Run a test."""
    import pytest

    try:
        test()
    except pytest.skip.Exception as error:
        return {"outcome": "skipped", "message": str(error)}
    except AssertionError as error:
        return {"outcome": "failed", "message": str(error) or "an assertion failed"}
    except Exception as error:
        own = isinstance(error, ArrayFerryError)
        return {"outcome": "failed", "message": str(error) if own else describe_error(error)}
    return {"outcome": "passed", "message": ""}


def _purpose(test: Any) -> str:
    return (test.__doc__ or "").partition("\n")[0]


def _contract(tested: Backend) -> Any:
    import numpy as np
    import pytest

    from arrayferry._contract.base import OWED
    from arrayferry._contract.same import describe_value, same
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
                if backend_name(array) not in (None, tested.name):
                    continue  # as `from numpy import asarray` makes them
                alike = found.shape == values.shape and found.dtype == values.dtype
                if alike and found.tobytes() == values.tobytes():
                    self.ways.setdefault(way, set()).add(values.dtype.name)
                    return array
            self.ways.setdefault(PLUGIN, set()).add(values.dtype.name)
            case = f"for an array of dtype {values.dtype.name} and shape {values.shape}"
            return self._call("from_numpy", values.copy(), what=case)

        # The same tests, with a few numbers.

        def try_array_types_exist(self) -> None:
            self.test_array_types_exist()

        def try_from_numpy(self) -> None:
            self._call("from_numpy", np.array(FEW, self._usual()), what=FOR_FEW)

        def try_its_arrays_are_recognised(self) -> None:
            self._recognised(self._one(), next(iter(self.ways)))

        def try_to_numpy(self) -> None:
            array, values = self._one(), np.array(FEW, self._usual())
            module = type(array).__module__.partition(".")[0]
            if module == "builtins" or backend_name(array) not in (None, tested.name):
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


def backend_name(array: Any) -> str | None:
    """Return the name of the backend of an array, None if it is of none."""
    kind = registry.kind(array)
    return None if kind.backend is None else kind.backend.name


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
