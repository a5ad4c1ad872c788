"""Task: whether a library that arrays are read from can be used here. It is imported for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from arrayferry import registry

__all__ = ["answer"]


def answer(name: str) -> Iterator[dict[str, Any]]:
    """Yield one message.

    Args:
        name: the package of sources.
    """
    facts: dict[str, Any] = {"problem": None, "remedy": None}
    for source in registry.sources():
        if source.package == name:
            problem = source.problem()
            if problem is not None:
                facts.update(problem=problem.reason, remedy=problem.remedy or None)
    yield facts
