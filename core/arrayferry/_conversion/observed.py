"""`Observed`: stands in for what a conversion has learnt while somebody watches, so that nobody pays for it else."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from arrayferry._observers import Call, is_asked_by_user, observers, open_call, place_of_user
from arrayferry._registry.registry import default_registry

from .crossings import NumberCrossing, crossings_of, first_source
from .learnt import Learnt

__all__ = ["Observed", "observe", "observe_again", "observed_read", "restore"]


class Observed:
    """Converts as the `Learnt` inside does, and tells those who watch.

    Args:
        conversion: whose it is.
        learnt: what converts.

    Attributes:
        learnt: as given. All that is asked of it but conversions is answered by it.
    """

    def __init__(self, conversion: Any, learnt: Learnt) -> None:
        self._conversion = weakref.ref(conversion)
        self.learnt = learnt

    def run(self, value: Any) -> Any:
        """Convert a value."""
        if not observers:
            self._end()
            return self.learnt.run(value)
        return self._watch(self.learnt.run, value)

    def fallback(self, value: Any) -> Any:
        """Convert a value without a plan."""
        if not observers:
            return self.learnt.fallback(value)
        return self._watch(self.learnt.fallback, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learnt, name)

    def _end(self) -> None:
        """Step aside: nobody watches any more."""
        conversion = self._conversion()
        if conversion is not None:
            restore(conversion)
            if observers:  # somebody has just begun
                observe_again(conversion)

    def _watch(self, convert: Callable[[Any], Any], value: Any) -> Any:
        watching = tuple(observers)
        outer = open_call.call
        call = open_call.call = Call()
        start = time.perf_counter()
        try:
            result = convert(value)
        except Exception:
            seconds = time.perf_counter() - start
            open_call.call = None  # what follows is no part of a conversion
            self._tell_failure(watching, value, seconds - call.within, sys._getframe())
            raise
        else:
            seconds = time.perf_counter() - start
            open_call.call = None
            self._tell(watching, call, value, result, seconds - call.within, sys._getframe())
        finally:
            open_call.call = outer
            if outer is not None:
                outer.within += time.perf_counter() - start
        return result

    def _tell(
        self,
        watching: Iterable[Any],
        call: Call,
        value: Any,
        result: Any,
        seconds: float,
        frame: FrameType,
    ) -> None:
        try:
            learnt = self.learnt
            found = crossings_of(value, result, learnt, learnt._kind_of)
            if found:
                place = place_of_user(frame)
                if learnt.options.copy is True and not is_asked_by_user(frame):
                    for crossing in found:  # who reads about it cannot leave it out
                        crossing.avoidable = None
                for observer in watching:
                    observer.record(place, found, call.notes, seconds)
        except Exception:  # an odd value, or one that another thread changes
            for observer in watching:
                observer.record_unread()

    def _tell_failure(
        self, watching: Iterable[Any], value: Any, seconds: float, frame: FrameType
    ) -> None:
        learnt = self.learnt
        try:
            source = first_source(value, learnt, learnt._kind_of)
        except Exception:
            source = ""
        place = place_of_user(frame)
        for observer in watching:
            observer.record_failure(place, source, learnt.target.name, seconds)


def observe(conversion: Any, learnt: Learnt) -> Observed:
    """Put an `Observed` in the place of what a conversion has learnt."""
    observed = Observed(conversion, learnt)
    _put(conversion, learnt, observed)
    return observed


def observe_again(conversion: Any) -> None:
    """Observe a conversion that exists, if it has learnt anything and is not observed yet."""
    learnt = conversion._learnt
    if type(learnt) is Learnt:
        observe(conversion, learnt)


def restore(conversion: Any) -> None:
    """Put what a conversion has learnt back in its place."""
    observed = conversion._learnt
    if type(observed) is Observed:
        _put(conversion, observed.learnt, observed.learnt)


def _put(conversion: Any, learnt: Learnt, what: Learnt | Observed) -> None:
    conversion._learnt = what
    if conversion.registry.catalog is not learnt.catalog:  # it changed, maybe just before
        conversion._learnt = None


def observed_read(read: Callable[[Any], Any], x: Any) -> Any:
    """Read a number from an array, and tell those who watch.

    The adapters call it where they read numbers without a conversion, if anybody watches.

    Args:
        read: returns the number.
        x: the array, or anything else.
    """
    start = time.perf_counter()
    number = read(x)
    seconds = time.perf_counter() - start
    kind = default_registry().kind(x)
    if kind.what == "array" and kind.backend is not None and kind.backend.name != "numpy":
        place, crossing = place_of_user(sys._getframe()), NumberCrossing(x, kind.backend)
        for observer in tuple(observers):
            observer.record(place, [crossing], (), seconds)
    return number
