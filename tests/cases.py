"""Which cases of a large table are quick: the others are marked `long`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def crossed(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations. Each value is in a quick one."""
    tables = [list(axis) for axis in axes]
    sizes = [len(table) for table in tables]
    quick = {tuple(row % size for size in sizes) for row in range(max(sizes))}
    return [
        pytest.param(
            *(table[index] for table, index in zip(tables, place, strict=True)),
            marks=() if place in quick else pytest.mark.long,
        )
        for place in itertools.product(*map(range, sizes))
    ]


def first_of_each(cases: Collection[Any], kind: Callable[[Any], Any]) -> list[Any]:
    """Return all cases. The first of each kind is quick."""
    known = set()
    found = []
    for case in cases:
        found.append(pytest.param(case, marks=pytest.mark.long if kind(case) in known else ()))
        known.add(kind(case))
    return found
