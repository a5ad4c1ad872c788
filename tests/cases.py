"""Which cases of a large table are quick: the others are marked `long`."""

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def crossed(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations. Each value is in a quick one. Rows of several values come from `params`."""
    tables = [list(axis) for axis in axes]
    sizes = [len(table) for table in tables]
    quick = {tuple(row % size for size in sizes) for row in range(max(sizes))}
    found = []
    for place in itertools.product(*map(range, sizes)):
        values: list[Any] = []
        for table, index in zip(tables, place, strict=True):
            case = table[index]
            values += case.values if type(case) is type(pytest.param()) else [case]
        found.append(_marked(tuple(values), place in quick))
    return found


def params(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return rows of several values as `crossed` takes them."""
    return [pytest.param(*row) for row in rows]


def first_of_each(cases: Collection[Any], kind: Callable[[Any], Any]) -> list[Any]:
    """Return all cases. The first of each kind is quick."""
    kinds = [kind(case) for case in cases]
    return [_marked(case, kinds.index(kinds[n]) == n) for n, case in enumerate(cases)]


def quick_if(cases: Iterable[Any], is_quick: Callable[[Any], Any]) -> list[Any]:
    """Return all cases. Those are quick of which the function says so."""
    return [_marked(case, is_quick(case)) for case in cases]


def _marked(case: Any, quick: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if quick else pytest.mark.long)
