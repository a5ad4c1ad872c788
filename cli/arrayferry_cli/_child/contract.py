"""Task: run the contract kit on a backend, as far as that is possible without its author."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from arrayferry import ArrayFerryError, PluginWarning, registry
from arrayferry.adapting import describe_error
from arrayferry_cli._reports import Begun, Essential, MadeBy, TestReport, Tests, Unanswerable

ESSENTIAL = (
    "test_array_types_exist",
    "test_from_numpy",
    "test_its_arrays_are_recognised",
    "test_to_numpy",
)
DIRECT = "test_direct_converters_match_the_general_path"


def answer(
    name: str, done: list[str], tried: bool, only_direct: bool
) -> Iterator[Unanswerable | Tests | Begun | TestReport | Essential | MadeBy]:
    """Yield what the tests check, the beginning and the outcome of each, and how their arrays were made.

    The tests need a few numbers to be converted in both directions. If that fails, only those that show it are run.

    Args:
        name: the name of a backend.
        done: tests to leave out.
        tried: whether it is known that a few numbers can be converted in both directions.
        only_direct: whether only direct converters are tested.
    """
    if importlib.util.find_spec("pytest") is None:
        yield Unanswerable("the contract kit needs pytest. Run: pip install pytest", False)
        return
    backend = registry.backend(name)
    problem = backend.problem()
    if problem is not None:
        raise problem
    from arrayferry.testing import contract_for

    contract = contract_for(backend)
    # in the order in which pytest runs them
    members = {name: None for cls in reversed(type(contract).__mro__) for name in vars(cls)}
    tests = [
        test for test in members if test.startswith("test_") and (test == DIRECT or not only_direct)
    ]
    purposes = {test: _purpose(getattr(contract, test)) for test in tests}
    yield Tests(purposes)
    if not tried and not only_direct:
        broken = any(test in done for test in ESSENTIAL)
        for test in ESSENTIAL:
            if test not in done:
                yield Begun(test)
                result = _run(test, purposes, getattr(contract, f"try_{test[5:]}"))
                if result.outcome == "failed":
                    broken = True
                    yield result
        if broken:
            return
    yield Essential()
    for test in tests:
        if test not in done:
            yield Begun(test)
            yield _run(test, purposes, getattr(contract, test))
    yield MadeBy({way: sorted(dtypes) for way, dtypes in sorted(contract.ways.items())})


def _run(name: str, purposes: dict[str, str], test: Callable[[], None]) -> TestReport:
    import pytest

    report = TestReport(name, purposes.get(name, ""), "failed", "")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", PluginWarning)
            test()
    except pytest.skip.Exception as error:
        report.outcome, report.message = "skipped", str(error)
    except AssertionError as error:
        report.message = str(error) or "an assertion failed"
    except ArrayFerryError as error:
        report.message = str(error)
    except Exception as error:
        report.message = describe_error(error)
    else:
        report.outcome = "passed"
        report.message = " ".join(dict.fromkeys(str(each.message) for each in found))
    return report


def _purpose(test: Any) -> str:
    return (test.__doc__ or "").partition("\n")[0]
