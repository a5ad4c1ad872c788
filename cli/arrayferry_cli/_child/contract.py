"""Task: the contract kit on a backend, as far as it can be run without its author."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from arrayferry import ArrayFerryError, registry
from arrayferry.adapting import describe_error

__all__ = ["answer"]

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
    from arrayferry.testing import contract_for

    contract = contract_for(backend)
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
