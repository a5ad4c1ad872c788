"""Task: whether a library that arrays are read from can be used here. The library is imported for this."""

from __future__ import annotations

from collections.abc import Iterator

from arrayferry import registry
from arrayferry_cli._reports import Facts


def answer(name: str) -> Iterator[Facts]:
    """Yield what was found.

    Args:
        name: the package of sources.
    """
    facts = Facts()
    for source in registry.sources():
        if source.package == name:
            problem = source.problem()
            if problem is not None:
                facts.problem, facts.remedy = problem.reason, problem.remedy or None
    yield facts
