"""Routes: the steps from one backend to another.

A place is a backend and a device. All devices that use host memory count as one device. A step between two places
is a direct converter, an exchange by DLPack, a move between two devices of one library, or a conversion from or to
NumPy in host memory. The route is the cheapest path, and is cached by the catalog.

A route passes only through a few places: NumPy on the host, places where direct converters start, and places of the
source and the target. So the time of the search does not grow with the number of backends.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from arrayferry._errors import ConversionError
from arrayferry._plugin.backend import Backend, same_library
from arrayferry._plugin.call import call_backend
from arrayferry._plugin.converter import COSTS, Converter, Cost
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._types import Device

from .devices import device_kind, memory_of, resolve_device, tells_when_done
from .memory import COPIED, decide

Via = Literal["converter", "dlpack", "host", "device"]
How = Literal["shared", "copied", "transferred", "computed"]
HOW: dict[Cost, How] = {
    "share": "shared", "copy": "copied", "transfer": "transferred", "compute": "computed"
}  # fmt: skip
"""For each cost of a step, what happens to the memory of the array."""


class Place(NamedTuple):
    """A backend and a device: "cpu" for all devices that use host memory, or a name such as "cuda:0"."""

    backend: str
    device: str

    def __str__(self) -> str:
        return f"{self.backend} ({self.device})"


class Step(NamedTuple):
    """One step of a route.

    Attributes:
        source: where the step starts.
        target: where the step ends.
        cost: "share", "copy" (on the device), "transfer" (between host and device, or two devices) or "compute".
        via: "converter" (a direct converter), "dlpack", "host" (into or out of NumPy) or "device" (a move
            within one library).
        converter: the direct converter if `via` is "converter", else None.
    """

    source: Place
    target: Place
    cost: Cost
    via: Via
    converter: Converter | None = None

    @property
    def how(self) -> How:
        """What happens to the memory of the array: "shared", "copied", "transferred" or "computed"."""
        return HOW[self.cost]


class Route(NamedTuple):
    """The steps from one backend to another. A route prints as one readable line.

    Attributes:
        steps: the steps, in order; empty if no step is needed.
        source: where the route starts.
        target: where the route ends.
    """

    source: Place
    target: Place
    steps: tuple[Step, ...]

    @property
    def copies(self) -> bool:
        """Whether the result has its own memory."""
        return any(step.cost != "share" for step in self.steps)

    @property
    def transfers(self) -> int:
        """The number of transfers between the host and a device, or between two devices."""
        return sum(step.cost == "transfer" for step in self.steps)

    @property
    def computes(self) -> bool:
        """Whether a lazy array is computed."""
        return any(step.cost == "compute" for step in self.steps)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.source}: already there"
        places = [self.source, *(step.target for step in self.steps)]
        show_index = len({place.device for place in places if place.device != "cpu"}) > 1
        names = [str(p if show_index else Place(p.backend, device_kind(p.device))) for p in places]
        text = names[0]
        for step, name in zip(self.steps, names[1:], strict=True):
            by_text = " by DLPack" if step.via == "dlpack" else ""
            text += f" -> {name} {step.how}{by_text}"
        return text


HOST = Place("numpy", "cpu")


def find_route(
    catalog: Catalog,
    source: Origin,
    source_device: str,
    target: Backend,
    target_device: str,
    without: frozenset[object] = frozenset(),
) -> Route:
    """Return the cheapest route from one device to another. The catalog caches the route.

    Args:
        catalog: the backends and converters that routes consist of.
        source: the backend to start from.
        source_device: the device to start from.
        target: the backend to reach.
        target_device: the device to reach.
        without: converters that must not be used, and "dlpack" if DLPack must not be used.

    Raises:
        ConversionError: no route exists, for example because the plugin of NumPy is missing.
    """
    start = Place(source.name, memory_of(source_device))
    goal = Place(target.name, memory_of(target_device))
    key = (source, start, target, goal, without)
    route = catalog.routes.get(key)
    if route is None:
        route = catalog.routes[key] = _Search(catalog, source, target, start, goal, without).run()
    return route


class _Search:
    """The search for the cheapest route from one place to another."""

    def __init__(
        self,
        catalog: Catalog,
        source: Origin,
        target: Backend,
        start: Place,
        goal: Place,
        without: frozenset[object],
    ) -> None:
        self.source = source
        self.start = start
        self.goal = goal
        end_backends = {source.name: source, target.name: target}
        self.backends: dict[str, Any] = dict(catalog.backends) | end_backends
        self.converters = [
            converter
            for converter in catalog.converters
            if converter not in without
            and converter.source != converter.target
            and {converter.source, converter.target} <= self.backends.keys()
        ]
        self.dlpack = "dlpack" not in without
        # the target's library may move a shared array between devices only if the array never
        # changes, and if the library reports when the move is done. Until then, the array must be
        # stored
        self.moves_by_target = tells_when_done(target) and source.memory == "immutable"
        places = dict.fromkeys((HOST, goal, *self._between(target)))
        self.places = [place for place in places if place.backend in self.backends]
        self.devices = sorted({place.device for place in self.places})

    def _between(self, target: Backend) -> Iterator[Place]:
        """Yield the places where direct converters start.

        If the source and the goal are on two devices other than the host, also yield the target's library on the device
        of the source, and the source's library on the device of the goal.
        """
        devices = {HOST.device, self.goal.device, self.start.device}
        for converter in self.converters:
            for device in sorted(devices):
                if device_kind(device) == converter.source_device:
                    yield Place(converter.source, device)
        if len(devices) > 2:
            for origin, device in ((target, self.start.device), (self.source, self.goal.device)):
                if isinstance(origin, Backend) and device in call_backend(origin, "devices.names"):
                    yield Place(origin.name, device)
                    if self.moves_by_target:
                        return

    def run(self) -> Route:
        """Return the cheapest route, found by Dijkstra's algorithm."""
        tiebreaker = itertools.count()
        queue = [(0, next(tiebreaker), Route(self.start, self.start, ()))]
        done_places: set[Place] = set()
        while queue:
            cost, _, route = heapq.heappop(queue)
            if route.target == self.goal:
                return route
            if route.target in done_places:
                continue
            done_places.add(route.target)
            for step in self._steps(route.target, COPIED if route.copies else ""):
                # at equal cost, prefer fewer steps, direct converters, and moves by the source's library
                moved_by_other = step.via == "device" and step.source.backend != self.source.name
                step_cost = COSTS[step.cost] * 4 + (step.converter is None) + moved_by_other
                longer_route = Route(self.start, step.target, (*route.steps, step))
                heapq.heappush(queue, (cost + step_cost, next(tiebreaker), longer_route))
        raise ConversionError(
            f"there is no route from {self.start} to {self.goal}",
            remedy="The general path needs the plugin of NumPy. Check whether ARRAYFERRY_PLUGINS leaves it out.",
            source=self.start.backend,
            target=self.goal.backend,
        )

    def _steps(self, place: Place, copied: str) -> Iterator[Step]:
        """Yield the steps from a place. `copied` has the same meaning as in `decide`."""
        start_kind = device_kind(place.device)
        for converter in self.converters:
            if (converter.source, converter.source_device) != (place.backend, start_kind):
                continue
            same_kind = converter.target_device == start_kind
            for device in [place.device] if same_kind else self.devices:
                if device_kind(device) == converter.target_device:
                    end_place = Place(converter.target, device)
                    may_share = converter.cost == "share"
                    cost = self._sharing(end_place, copied) if may_share else converter.cost
                    yield Step(place, end_place, cost, "converter", converter)
        for end_place in self.places:
            if end_place.backend != place.backend:
                yield from self._general(place, end_place, copied)
            elif end_place != place:
                yield Step(place, end_place, "transfer", "device")

    def _general(self, place: Place, end: Place, copied: str) -> Iterator[Step]:
        """Yield the steps between two libraries: by DLPack, and into or out of NumPy in host memory."""
        origin, target = self.backends[place.backend], self.backends[end.backend]
        same_device, kind = place.device == end.device, device_kind(end.device)
        if same_device and self.dlpack and _hands_over(origin, kind) and _hands_over(target, kind):
            moves_later = self.moves_by_target and end.device != self.goal.device
            yield Step(place, end, "share" if moves_later else self._sharing(end, copied), "dlpack")
        cost: Cost
        if end == HOST:
            cost = "share" if origin.to_numpy_shares else "copy"
        elif place == HOST:
            cost = self._sharing(end, copied) if target.from_numpy_shares else "copy"
        else:
            return
        if origin.memory == "lazy":
            cost = "compute"
        elif not same_device:
            cost = "transfer"
        yield Step(place, end, cost, "host")

    def _sharing(self, place: Place, copied: str) -> Cost:
        """Return "share" if the backend of a place may use memory of the source, else "copy"."""
        return decide(self.source, self.backends[place.backend], None, copied=copied)


def _hands_over(origin: Origin, kind: str) -> bool:
    """Return whether a library exchanges arrays on a kind of device by DLPack."""
    return origin.dlpack is not None and kind in origin.dlpack.kinds


def describe_route(
    catalog: Catalog, source: Origin, target: Backend, device: Device, source_device: str
) -> Route:
    """Return the route of an array of `source` from the device `source_device` to `target`."""
    within_library = same_library(source, target)
    target_device = source_device
    if not within_library or device is not None:
        target_device, _ = resolve_device(target, device, source_device)
    if within_library:
        start = Place(source.name, memory_of(source_device))
        goal = Place(target.name, memory_of(target_device))
        is_moved = source_device != target_device
        return Route(start, goal, (Step(start, goal, "transfer", "device"),) if is_moved else ())
    return find_route(catalog, source, source_device, target, target_device)
