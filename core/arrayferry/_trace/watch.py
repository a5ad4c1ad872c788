"""What traces do around a conversion: they measure the time, and count the arrays that crossed.

Conversions know nothing of traces. They call the method `watch` of the first entry of the list `observers`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry._conversion.pairs import Pairs
from arrayferry._observers import OpenConversion, call_site, observers, open_conversion
from arrayferry._registry.registry import default_registry
from arrayferry._types import AnyArray, AnyTree

from .crossings import ArrayCrossing, crossings_of, number_crossing


class Counting:
    """The lock of all traces. A thread must hold it to count a conversion, and to start or stop a trace."""

    lock = threading.RLock()


def _after_fork() -> None:
    Counting.lock = threading.RLock()  # a thread of the parent process may have held the old lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def watch(pairs: Pairs, convert: Callable[[Any], Any], value: AnyTree) -> Any:
    """Convert a value, and report the conversion to all traces."""
    outer_conversion = open_conversion.call
    opened = OpenConversion()
    start = time.perf_counter()
    try:
        open_conversion.call = opened
        result = convert(value)
        _report(opened, start, lambda by_user: crossings_of(value, result, pairs, by_user=by_user))
        return result
    finally:
        open_conversion.call = outer_conversion
        if outer_conversion is not None:
            outer_conversion.within += time.perf_counter() - start


def _report(
    call: OpenConversion, start: float, find: Callable[[bool], Sequence[ArrayCrossing]]
) -> None:
    """Find the crossings of a conversion, and report them to all traces."""
    seconds = time.perf_counter() - start - call.within
    open_conversion.call = None  # the code below is not part of the conversion
    site, by_user = call_site(sys._getframe())
    try:
        crossings = find(by_user)
    except Exception:
        # the value cannot be examined, or another thread is changing it: traces count it as unread
        crossings = None
    with Counting.lock:
        for trace in dict.fromkeys(observers):
            trace.record(site, crossings, call.notes, seconds)


def read_number(read: Callable[[Any], Any], x: AnyArray) -> Any:
    """Read a number from an array, and report the read to all traces. See `arrayferry.extending.observed_read`."""
    conversion, start = OpenConversion(), time.perf_counter()
    number = read(x)
    kind = default_registry().kind(x)
    if kind.category == "array" and kind.backend is not None and kind.backend.name != "numpy":
        backend = kind.backend
        _report(conversion, start, lambda _: [number_crossing(x, backend)])
    return number
