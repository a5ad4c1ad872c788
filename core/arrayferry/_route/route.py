"""Routes: the steps from one backend to another.

A place is a backend and a device. All devices that use host memory count as one. Steps between places are
direct converters, DLPack, moves between the devices of one library, and the general path through NumPy in
host memory. The route is the cheapest path. It is found once and cached by the catalog.

Only a few places can lie in between: NumPy on the host, and the ends of direct converters. So the search
does not grow with the number of backends.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from arrayferry._errors import ConversionError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, overrides
from arrayferry._plugin.converter import COSTS, Converter, Cost
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._repr import html_facts, html_table, html_view

from .devices import device_kind, memory_of, resolve_device
from .memory import COPIED, decide

__all__ = ["HOST", "Place", "Route", "Step", "describe_route", "find_route"]

Via = Literal["converter", "dlpack", "host", "device"]


class Place(NamedTuple):
    """A backend and a device: "cpu" for all that use host memory, or a name such as "cuda:0"."""

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
        via: "converter" (a direct one), "dlpack", "host" (in or out of NumPy) or "device" (a move
            within one library).
        converter: the direct converter, if it is one.
    """

    source: Place
    target: Place
    cost: Cost
    via: Via
    converter: Converter | None = None


class Route(NamedTuple):
    """The steps from one backend to another. It prints as one readable line.

    Attributes:
        steps: the steps, in order; empty if there is nothing to do.
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
        """How many times data is transferred between the host and a device, or between two devices."""
        return sum(step.cost == "transfer" for step in self.steps)

    @property
    def computes(self) -> bool:
        """Whether a lazy array is computed."""
        return any(step.cost == "compute" for step in self.steps)

    def __repr__(self) -> str:
        return str(self)

    @html_view
    def _repr_html_(self) -> str:
        title = f"{self.source} to {self.target}"
        if not self.steps:
            return html_facts(title, {"steps": "none: arrays are there already"})
        rows = [
            (str(step.source), str(step.target), _WORDS[step.cost], _by(step))
            for step in self.steps
        ]
        result = "has memory of its own" if self.copies else "shares the memory of the source"
        table = html_table(("from", "to", "how", "by"), rows)
        return html_facts(title, {"result": result}, table)

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.source}: already there"
        ways = {"dlpack": " by DLPack"}
        places = [self.source, *(step.target for step in self.steps)]
        several = len({place.device for place in places if place.device != "cpu"}) > 1
        names = [str(p if several else Place(p.backend, device_kind(p.device))) for p in places]
        text = names[0]
        for step, name in zip(self.steps, names[1:], strict=True):
            text += f" -> {name} {_WORDS[step.cost]}{ways.get(step.via, '')}"
        return text


_WORDS = {"share": "shared", "copy": "copied", "transfer": "transferred", "compute": "computed"}


def _by(step: Step) -> str:
    """Say what makes a step."""
    if step.converter is not None:
        return type(step.converter).__name__
    return {"dlpack": "DLPack", "device": step.source.backend}.get(step.via, "its plugin")


HOST = Place("numpy", "cpu")


def find_route(
    catalog: Catalog,
    source: Origin,
    here: str,
    target: Backend,
    there: str,
    without: frozenset[object] = frozenset(),
) -> Route:
    """Find the cheapest route from one device to another. The catalog caches it.

    Raises:
        ConversionError: there is none, as without the plugin of NumPy.
    """
    here, there = memory_of(here), memory_of(there)
    key = (source, here, target, there, without)
    route = catalog.routes.get(key)
    if route is None:
        start, goal = Place(source.name, here), Place(target.name, there)
        route = catalog.routes[key] = _Search(catalog, source, target, without).run(start, goal)
    return route


class _Search:
    """The search for the cheapest path between two places.

    Args:
        catalog: the backends and converters that steps are made of.
        source: the backend to start from.
        target: the backend to reach.
        without: converters that must not be used, and "dlpack" if that must not be used.
    """

    def __init__(
        self, catalog: Catalog, source: Origin, target: Backend, without: frozenset[object]
    ) -> None:
        self.source = source
        self.target = target
        self.known: dict[str, Any] = {**catalog.backends, source.name: source, target.name: target}
        self.converters = [
            c for c in catalog.converters if c not in without and c.source != c.target
        ]
        self.dlpack = "dlpack" not in without
        # the source's library waits for its own move before it writes again;
        # an array that never changes only has to be kept
        tells = overrides(target, Backend.fence)
        self.moves_by_target = source.memory == "immutable" and tells
        self.goal = HOST
        self.stops: set[Place] = set()

    def run(self, start: Place, goal: Place) -> Route:
        """Search with Dijkstra's algorithm."""
        self.goal = goal
        self.stops = {goal, HOST, *self._between(start, goal)}
        order = itertools.count()
        queue: list[tuple[int, int, Place, tuple[Step, ...]]] = [(0, next(order), start, ())]
        done: set[Place] = set()
        while queue:
            cost, _, place, steps = heapq.heappop(queue)
            if place == goal:
                return Route(start, goal, steps)
            if place in done or place.backend not in self.known:
                continue
            done.add(place)
            copied = COPIED if any(step.cost != "share" for step in steps) else ""
            for step in self.steps_from(place, copied):
                if step.target not in done:
                    # prefer fewer steps, a converter to the general path, and a move by the source's library
                    late = step.via == "device" and place.backend != start.backend
                    more = COSTS[step.cost] * 4 + (0 if step.converter else 1) + late
                    heapq.heappush(queue, (cost + more, next(order), step.target, (*steps, step)))
        raise ConversionError(
            f"there is no route from {start} to {goal}",
            remedy="The general path needs the plugin of NumPy: does ARRAYFERRY_PLUGINS leave it out?",
            source=start.backend,
            target=goal.backend,
        )

    def _between(self, start: Place, goal: Place) -> Iterator[Place]:
        """Yield the places on the way: where direct converters start, and both libraries on both devices."""
        kinds = {place.device: device_kind(place.device) for place in (start, goal, HOST)}
        for converter in self.converters:
            for device, kind in kinds.items():
                if converter.source_device == kind:
                    yield Place(converter.source, device)
        if len(kinds) > 2:  # from one device to another
            if self._has(self.target, start.device):
                yield Place(self.target.name, start.device)
                if self.moves_by_target:
                    return
            if self._has(self.source, goal.device):
                yield Place(self.source.name, goal.device)

    def _has(self, origin: Origin, device: str) -> bool:
        return isinstance(origin, Backend) and device in call_backend(origin, "devices")

    def steps_from(self, place: Place, copied: str) -> Iterator[Step]:
        """Yield the steps from a place. `copied` is as in `decide`."""
        backend = self.known[place.backend]
        yield from self._by_converter(place, copied)
        if self.dlpack and device_kind(place.device) in backend.dlpack_devices:
            yield from self._by_dlpack(place, backend, copied)
        if place == HOST:
            yield from self._from_host(copied)
        elif backend.memory == "lazy":
            yield Step(place, HOST, "compute", "host")
        elif place.device != "cpu":
            yield Step(place, HOST, "transfer", "host")
        else:
            yield Step(place, HOST, "share" if backend.to_numpy_shares else "copy", "host")
        for stop in self.stops:
            if stop.backend == place.backend and stop.device != place.device:
                yield Step(place, stop, "transfer", "device")

    def _by_converter(self, place: Place, copied: str) -> Iterator[Step]:
        for converter in self.converters:
            kind = device_kind(place.device)
            if (converter.source, converter.source_device) != (place.backend, kind):
                continue
            if converter.target_device == kind:
                ends = [place.device]
            else:
                devices = {"cpu", *(stop.device for stop in self.stops)}
                ends = [each for each in devices if device_kind(each) == converter.target_device]
            for device in sorted(ends):
                goal = Place(converter.target, device)
                cost = converter.cost
                if cost == "share":
                    cost = self._sharing(goal, copied)
                yield Step(place, goal, cost, "converter", converter)

    def _by_dlpack(self, place: Place, backend: Any, copied: str) -> Iterator[Step]:
        for stop in self.stops:
            other = self.known.get(stop.backend)
            if (
                other is not None
                and other is not backend
                and stop.device == place.device
                and device_kind(stop.device) in other.dlpack_devices
            ):
                moved = self.moves_by_target and stop.device != self.goal.device
                cost: Cost = "share" if moved else self._sharing(stop, copied)
                yield Step(place, stop, cost, "dlpack")

    def _from_host(self, copied: str) -> Iterator[Step]:
        for stop in self.stops:
            other = self.known.get(stop.backend)
            if other is None or stop == HOST:
                continue
            if stop.device != "cpu":
                yield Step(HOST, stop, "transfer", "host")
            else:
                cost: Cost = self._sharing(stop, copied) if other.from_numpy_shares else "copy"
                yield Step(HOST, stop, cost, "host")

    def _sharing(self, place: Place, copied: str) -> Cost:
        """Decide whether the backend of a place shares memory of the source, if that is known."""
        target = self.known.get(place.backend)
        return "share" if target is None else decide(self.source, target, None, copied=copied)


def describe_route(
    catalog: Catalog, source: Origin, target: Backend, device: Any, here: str
) -> Route:
    """Return the route of an array of `source` on the device `here`."""
    same = isinstance(source, Backend) and source.name == target.name
    there = here if same and device is None else resolve_device(target, device, here)[0]
    if same:
        start, goal = Place(source.name, memory_of(here)), Place(target.name, memory_of(there))
        steps = () if here == there else (Step(start, goal, "transfer", "device"),)
        return Route(start, goal, steps)
    return find_route(catalog, source, here, target, there)
