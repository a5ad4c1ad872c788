"""Round trips: arrays that are followed from library to library until they come back."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from arrayferry._observers import CallSite
from arrayferry._route.devices import memory_of

from .crossings import Crossing
from .rows import TraceFinding, place_text
from .view import often

MAX_FOLLOWED = 4_096
"""The maximum number of arrays that are followed at a time."""
MAX_TRIPS = 10_000
"""The maximum number of different round trips that are counted."""
_Stop = tuple[str, str]
_Trip = tuple[CallSite, CallSite, _Stop, tuple[_Stop, ...], _Stop]
"""A kind of round trip: the lines where it came back and left, the library and device there, and those between."""


class _Followed:
    """An array that has crossed.

    Attributes:
        past: the earlier stops of its values: library, device, and the line where they left.
    """

    __slots__ = ("_owner", "_result", "past")

    def __init__(self, crossing: Crossing, past: tuple[tuple[str, str, CallSite], ...]) -> None:
        self._result = weakref.ref(crossing.after)
        self._owner = weakref.ref(crossing.before) if crossing.how == "shared" else None
        self.past = past

    def holds(self, x: Any, address: int) -> bool:
        """Return whether an array at the same address is the same one, or uses its memory."""
        result = self._result()
        if result is x:
            return True
        owner = self._owner() if self._owner is not None else None
        return address != 0 and (result is not None or owner is not None)


class RoundTrips:
    """The round trips of one trace. It keeps no array alive."""

    def __init__(self) -> None:
        self._followed: OrderedDict[Any, _Followed] = OrderedDict()
        self._trips: dict[_Trip, int] = {}

    def forget_arrays(self) -> None:
        """Stop following all arrays."""
        self._followed.clear()

    def follow(self, site: CallSite, crossing: Crossing) -> None:
        """Follow an array from library to library, and note where it comes back."""
        start = (crossing.source, crossing.source_device)
        goal = (crossing.target, crossing.target_device)
        if start == goal:
            return
        before, after = crossing.addresses
        followed = self._followed.get(_key(crossing.before, before, crossing.source_device))
        past = followed.past if followed and followed.holds(crossing.before, before) else ()
        been = [entry[:2] for entry in past]
        if start in been:  # the earlier array was used again
            past = past[: been.index(start)]
        key = _key(crossing.after, after, crossing.target_device)
        if goal in been[: len(past)]:
            out = past[been.index(goal)][2]
            trip = (site, out, goal, tuple(been[been.index(goal) + 1 :]), start)
            if trip in self._trips or len(self._trips) < MAX_TRIPS:
                self._trips[trip] = self._trips.get(trip, 0) + 1
            self._followed.pop(key, None)
            return
        try:
            self._followed[key] = _Followed(crossing, (*past, (*start, site))[-4:])
        except TypeError:  # there are no weak references to it
            return
        self._followed.move_to_end(key)
        if len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)

    def findings(self) -> Iterator[tuple[tuple[Any, ...], TraceFinding]]:
        """Yield each kind of round trip: a key, and the finding."""
        for trip, times in list(self._trips.items()):
            site, out, goal, between, start = trip
            way = " -> ".join(_where(*stop) for stop in (goal, *between, start, goal))
            left = "" if out == site else f"; it left at {place_text(*out)}"
            reason = f"an array came back to where it was, {way}, {often(times)}{left}"
            remedy = f"Keep the array that it was made from, if nothing is written to it in between; or do the work in {goal[0]}."
            yield trip, TraceFinding("round trip", *site, times, reason, remedy)


def _key(x: Any, address: int, device: str) -> Any:
    """Return a key for an array. It has the size too, since a part of an array may begin where the array does."""
    if not address:
        return "id", id(x)
    return memory_of(device), address, getattr(x, "nbytes", None)


def _where(library: str, device: str) -> str:
    return library if device in ("cpu", "") else f"{library} ({device})"
