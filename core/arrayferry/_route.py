"""Routes: how arrays go from one backend to another.

Places are (backend, kind of device). Steps between places are direct converters, DLPack, moves of
one library between its own devices, and the way through NumPy in host memory. The route is the
cheapest path. It is found once and remembered by the catalog.

Few places can lie in between: NumPy on the host, and those that a direct converter leads to or
from. So the search does not grow with the number of backends.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._converter import COSTS, Converter, Cost
from ._devices import device_kind, resolve_device
from ._errors import ConversionError
from ._host import promise_broken

if TYPE_CHECKING:
    from ._backend import Backend
    from ._catalog import Catalog

__all__ = ["HOST", "Place", "Route", "Step", "describe_route", "find_route"]

Via = Literal["converter", "dlpack", "host", "device"]


class Place(NamedTuple):
    """A backend and a kind of device."""

    backend: str
    device: str

    def __str__(self) -> str:
        return f"{self.backend} ({self.device})"


class Step(NamedTuple):
    """One step of a route.

    Attributes:
        source: where it starts.
        target: where it ends.
        cost: "share", "copy" (on the device), "transfer" (between host and device) or "compute".
        via: "converter" (a direct one), "dlpack", "host" (in or out of NumPy) or "device" (a move
            within one library).
        converter: the direct converter, if it is one.
    """

    source: Place
    target: Place
    cost: Cost
    via: Via
    converter: Converter | None = None


@dataclass(frozen=True)
class Route:
    """How arrays of one backend become arrays of another. Prints as a readable line.

    Attributes:
        steps: one after another; empty if the array is there already.
        source: where it starts.
        target: where it ends.
    """

    source: Place
    target: Place
    steps: tuple[Step, ...]

    @property
    def copies(self) -> bool:
        """Whether the result has memory of its own."""
        return any(step.cost != "share" for step in self.steps)

    @property
    def transfers(self) -> int:
        """How many times the data cross between the host and a device."""
        return sum(step.cost == "transfer" for step in self.steps)

    @property
    def computes(self) -> bool:
        """Whether a lazy array is computed on the way."""
        return any(step.cost == "compute" for step in self.steps)

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.source}: already there"
        words = {
            "share": "shared",
            "copy": "copied",
            "transfer": "transferred",
            "compute": "computed",
        }
        ways = {"dlpack": " by DLPack"}
        text = str(self.source)
        for step in self.steps:
            text += f" -> {step.target} {words[step.cost]}{ways.get(step.via, '')}"
        return text


HOST = Place("numpy", "cpu")


def find_route(
    catalog: Catalog,
    source: Backend,
    source_kind: str,
    target: Backend,
    target_kind: str,
    without: frozenset[object] = frozenset(),
) -> Route:
    """Find the cheapest route between two places, remembered by the catalog.

    Raises:
        ConversionError: there is none, which a backend of NumPy itself rules out.
    """
    key = (source, source_kind, target, target_kind, without)
    route = catalog.routes.get(key)
    if route is None:
        route = _search(catalog, source, source_kind, target, target_kind, without)
        catalog.routes[key] = route
    return route


def _search(
    catalog: Catalog,
    source: Backend,
    source_kind: str,
    target: Backend,
    target_kind: str,
    without: frozenset[object],
) -> Route:
    start, goal = Place(source.name, source_kind), Place(target.name, target_kind)
    known = {**catalog.backends, source.name: source, target.name: target}
    converters = [c for c in catalog.converters if c not in without and c.source != c.target]
    stops = {goal, HOST} | {Place(c.source, c.source_device) for c in converters}
    order = itertools.count()
    queue: list[tuple[int, int, Place, tuple[Step, ...]]] = [(0, next(order), start, ())]
    done: set[Place] = set()
    while queue:
        cost, _, place, steps = heapq.heappop(queue)
        if place == goal:
            return Route(start, goal, steps)
        if place in done or place.backend not in known:
            continue
        done.add(place)
        private = any(step.cost != "share" for step in steps)
        for step in _steps_from(place, stops, known, converters, source, private, without):
            if step.target not in done:
                # of equals, the one with fewer steps, and a converter before the general way
                more = COSTS[step.cost] * 4 + (0 if step.converter else 1)
                heapq.heappush(queue, (cost + more, next(order), step.target, (*steps, step)))
    raise ConversionError(
        f"there is no way from {start} to {goal}",
        remedy="Is the plugin of NumPy loaded? The general way leads through it.",
        source=source.name,
        target=target.name,
    )


def _steps_from(
    place: Place,
    stops: set[Place],
    known: dict[str, Backend],
    converters: list[Converter],
    source: Backend,
    private: bool,
    without: frozenset[object],
) -> Iterator[Step]:
    backend = known[place.backend]
    for converter in converters:
        if (converter.source, converter.source_device) == (place.backend, place.device):
            end = Place(converter.target, converter.target_device)
            cost = converter.cost
            if cost == "share" and not private and _clash(source, known.get(converter.target)):
                cost = "copy"
            yield Step(place, end, cost, "converter", converter)
    lazy = backend.memory == "lazy"
    if place.device in backend.dlpack_devices and "dlpack" not in without:
        for stop in stops:
            other = known.get(stop.backend)
            if (
                other is not None
                and other is not backend
                and stop.device == place.device
                and stop.device in other.dlpack_devices
            ):
                shares = private or not _clash(source, other)
                yield Step(place, stop, "share" if shares else "copy", "dlpack")
    on_host = place.device == "cpu"
    if place != HOST:
        out: Cost = (
            "compute" if lazy else "transfer" if not on_host else _sharing(backend.to_numpy_shares)
        )
        yield Step(place, HOST, out, "host")
    else:
        for stop in stops:
            other = known.get(stop.backend)
            if other is not None and stop != HOST:
                entering: Cost = (
                    "transfer" if stop.device != "cpu" else _sharing(other.from_numpy_shares)
                )
                if entering == "share" and not private and _clash(source, other):
                    entering = "copy"
                yield Step(place, stop, entering, "host")
    for stop in stops:
        if stop.backend == place.backend and stop.device != place.device:
            yield Step(place, stop, "transfer", "device")


def _clash(source: Backend, target: Backend | None) -> bool:
    """Whether sharing memory of `source` with `target` would break a promise."""
    constant = source.memory in ("immutable", "lazy")
    return target is not None and bool(
        promise_broken(source, target, constant=constant, readonly=False)
        or "unknown" in (source.memory, target.memory)
    )


def _sharing(shares: bool | None) -> Cost:
    return "share" if shares else "copy"


def describe_route(
    catalog: Catalog, source: Backend, target: Backend, device: Any, here: str
) -> Route:
    """The route that an array of `source` on the device `here` would take."""
    there, _ = resolve_device(target, device, here)
    if source.name == target.name:
        start, goal = Place(source.name, device_kind(here)), Place(target.name, device_kind(there))
        steps = () if here == there else (Step(start, goal, "transfer", "device"),)
        return Route(start, goal, steps)
    return find_route(catalog, source, device_kind(here), target, device_kind(there))
