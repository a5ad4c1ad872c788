"""The work of a trace around a running conversion: it measures, compares and reports.

The conversions themselves only know `observers`, and ask the first of them to `watch`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arrayferry._conversion.compiled import CompiledConversion
from arrayferry._observers import (
    OpenConversion,
    call_site,
    is_asked_by_user,
    observers,
    open_conversion,
)
from arrayferry._registry.registry import default_registry

from .crossings import Crossing, crossings_of, failed_crossing, number_crossing


def watch(compiled: CompiledConversion, convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert a value, and report it to all observers."""
    watching = tuple(observers)
    outer = open_conversion.call
    call = open_conversion.call = OpenConversion()
    start = time.perf_counter()
    try:
        result = convert(value)
    except Exception:
        call.notes.clear()
        _report(compiled, watching, call, start, lambda: [failed_crossing(value, compiled)])
        raise
    else:
        _report(compiled, watching, call, start, lambda: crossings_of(value, result, compiled))
    finally:
        open_conversion.call = outer
        if outer is not None:
            outer.within += time.perf_counter() - start
    return result


def _report(
    compiled: CompiledConversion,
    watching: Iterable[Any],
    call: OpenConversion,
    start: float,
    find: Callable[[], Sequence[Crossing]],
) -> None:
    """Report the crossings to the observers."""
    seconds = time.perf_counter() - start - call.within
    open_conversion.call = None  # the rest is not part of a conversion
    try:
        crossings = find()
        if crossings:
            frame = sys._getframe()
            site = call_site(frame)
            if compiled.options.copy is True and not is_asked_by_user(frame):
                for crossing in crossings:  # the user did not write it, and cannot leave it out
                    crossing.avoidable = None
            for observer in watching:
                observer.record(site, crossings, call.notes, seconds)
    except Exception:  # an odd value, or one that another thread changes
        for observer in watching:
            observer.record_unread()


def observed_read(read: Callable[[Any], Any], x: Any) -> Any:
    """Read a number from an array, and report it to the observers.

    If there are observers, the adapters call it to read numbers without a conversion.

    Args:
        read: returns the number.
        x: the array, or anything else.
    """
    start = time.perf_counter()
    number = read(x)
    seconds = time.perf_counter() - start
    kind = default_registry().kind(x)
    if kind.category == "array" and kind.backend is not None and kind.backend.name != "numpy":
        site, crossing = call_site(sys._getframe()), number_crossing(x, kind.backend)
        for observer in tuple(observers):
            observer.record(site, [crossing], (), seconds)
    return number
