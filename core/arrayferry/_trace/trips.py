"""Round trips: arrays that are followed from library to library until they come back."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from arrayferry._observers import CallSite
from arrayferry._types import AnyArray
from arrayferry._utilities.cache import Cache

from .crossings import ArrayCrossing, nbytes_of
from .rows import TraceFinding, counted, on_device, short_place

MAX_FOLLOWED = 4_096
"""The maximum number of arrays that are followed at a time."""
MAX_TRIPS = 10_000
"""The maximum number of different round trips that are counted."""


_Stop = tuple[str, str]
"""A library and a device."""
_Trip = tuple[CallSite, CallSite, tuple[_Stop, ...]]
"""A kind of round trip: the line where an array came back, the line where it left, and the stops of the array."""


class RoundTrips:
    """The round trips of arrays in one trace. References to the arrays are weak."""

    def __init__(self) -> None:
        self._trips: dict[_Trip, int] = {}
        # for each recent result: a weak reference to it, and the stops where its values were
        # before, each with the line of code where the values left the stop
        self.followed: Cache[Any, tuple[weakref.ref[Any], tuple[tuple[_Stop, CallSite], ...]]]
        self.followed = Cache(MAX_FOLLOWED)

    def follow(self, site: CallSite, crossing: ArrayCrossing) -> None:
        """Record the crossing of an array. If it returned to an earlier library and device, count a round trip."""
        start = (crossing.source, crossing.source_device)
        goal = (crossing.target, crossing.target_device)
        if start == goal or not crossing.nbytes or crossing.after is None:
            return
        address, result_address = crossing.addresses
        ref, past = self.followed.get(_key(start, crossing.before, address), (lambda: None, ()))
        followed = ref()
        is_followed = followed is crossing.before or (followed is not None and address)
        past = (*past, (start, site)) if is_followed else ((start, site),)
        visited = [stop for stop, _ in past]
        key = _key(goal, crossing.after, result_address)
        if goal in visited:
            left_index = visited.index(goal)
            trip = (site, past[left_index][1], (*visited[left_index:], goal))
            if trip in self._trips or len(self._trips) < MAX_TRIPS:
                self._trips[trip] = self._trips.get(trip, 0) + 1
            self.followed.pop(key, None)
        else:
            with suppress(TypeError):  # some results do not allow weak references
                self.followed[key] = weakref.ref(crossing.after), past[-4:]

    def findings(self) -> Iterator[TraceFinding]:
        """Yield a finding for each kind of round trip."""
        for (back_site, out_site, stops), count in list(self._trips.items()):
            stops_text = " -> ".join(on_device(*stop) for stop in stops)
            left_text = "" if out_site == back_site else f"; it left at {short_place(*out_site)}"
            reason = f"an array came back to where it was, {stops_text}, {counted(count, 'time')}{left_text}"
            remedy = f"Keep the first array and use it again, if no values are changed in between. Or do the work in {stops[0][0]}."
            yield TraceFinding("round trip", *back_site, count, reason, remedy)


def _key(stop: _Stop, x: AnyArray, address: int) -> Any:
    """Return a key for an array. It contains the size, since the address of `x[:1]` is that of `x`."""
    return stop, address or -id(x), nbytes_of(x)
