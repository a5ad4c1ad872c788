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
from typing import TYPE_CHECKING, Any, Literal

from ._converter import COSTS, Converter, Cost
from ._devices import device_kind, resolve_device
from ._errors import ConversionError, CopyRequiredError, TracedValueError
from ._host import Held, enter, leave, promise_broken

if TYPE_CHECKING:
    from ._backend import Backend
    from ._catalog import Catalog
    from ._options import Options

__all__ = ["Place", "Route", "Step", "describe_route", "find_route", "travel"]

Via = Literal["converter", "dlpack", "host", "device"]


@dataclass(frozen=True)
class Place:
    """A backend and a kind of device."""

    backend: str
    device: str

    def __str__(self) -> str:
        return f"{self.backend} ({self.device})"


@dataclass(frozen=True)
class Step:
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


_HOST = Place("numpy", "cpu")
_PASS_COPY = "Pass copy=None to let it be copied."


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
    stops = {goal, _HOST} | {Place(c.source, c.source_device) for c in converters}
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
    if place != _HOST:
        out: Cost = (
            "compute" if lazy else "transfer" if not on_host else _sharing(backend.to_numpy_shares)
        )
        yield Step(place, _HOST, out, "host")
    else:
        for stop in stops:
            other = known.get(stop.backend)
            if other is not None and stop != _HOST:
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


def travel(
    catalog: Catalog,
    x: Any,
    source: Backend,
    target: Backend,
    options: Options,
    *,
    without: frozenset[object] = frozenset(),
    values: Any = None,
) -> Any:
    """Take one array along its route, under all rules. This is the careful way.

    Args:
        catalog: where the route is found.
        x: an array of `source`.
        source: its backend.
        target: the backend to reach.
        options: the user's.
        without: direct converters that are not to be tried, and "dlpack" if that is not.
        values: what `source.to_numpy(x)` gave, if it was called already.

    Raises:
        ConversionError: it cannot be carried; one of its subclasses says why.
    """
    traced = source.is_traced(x)
    if traced and target.name != source.name:
        raise TracedValueError(
            f"a traced {source.name} value has no numbers yet, so it cannot become a {target.name} array",
            remedy="Convert outside the traced function (jit, grad, vmap), or call out of it "
            "with jax.pure_callback."
            if source.name == "jax"
            else "Convert outside of the transformed function.",
        )
    here = source.device_of(x) if not traced else "cpu"
    if target.name == source.name:
        return _stay(x, source, here, options, traced)
    there, device = resolve_device(target, options.device, here)
    kind, goal = device_kind(here), device_kind(there)
    while True:
        route = find_route(catalog, source, kind, target, goal, without)
        try:
            return _follow(catalog, route, x, source, target, device, there, options, values)
        except _UnservedError as unserved:
            without |= {unserved.by}


class _UnservedError(Exception):
    """A direct converter, or DLPack, leaves this array to the general way."""

    def __init__(self, by: object) -> None:
        super().__init__()
        self.by = by


def _stay(x: Any, backend: Backend, here: str, options: Options, traced: bool) -> Any:
    """Same library: the array itself, unless another device or a copy is asked for."""
    if traced or (options.device is None and not options.copy):
        return x
    there, device = resolve_device(backend, options.device, here)
    if there == here:
        return backend.copy(x) if options.copy else x
    if options.copy is False:
        raise CopyRequiredError(
            f"memory on {here} cannot be shared with {there}",
            remedy="Pass copy=None to let it be moved.",
        )
    return backend.to_device(x, device)


def _follow(
    catalog: Catalog,
    route: Route,
    x: Any,
    source: Backend,
    target: Backend,
    device: Any,
    there: str,
    options: Options,
    values: Any,
) -> Any:
    if options.copy is False and route.transfers:
        raise CopyRequiredError(
            f"memory on {route.source.device} cannot be shared with {route.target.device}",
            remedy=_PASS_COPY,
        )
    known = catalog.backends
    held = Held(x)
    last = len(route.steps) - 1
    for index, step in enumerate(route.steps):
        before = source if index == 0 else known[step.source.backend]
        after = target if index == last else known[step.target.backend]
        where = device if index == last else None
        held = _take(step, held, x, source, before, after, where, options, values)
    arrived = target.device_of(held.value)
    if options.device is not None and arrived != there:
        raise ConversionError(
            f"the plugin of {target.name} put an array on {arrived} where {there} was asked for",
            remedy="Tell the plugin's author.",
        )
    return held.value


def _take(
    step: Step,
    held: Held,
    x: Any,
    source: Backend,
    before: Backend,
    after: Backend,
    device: Any,
    options: Options,
    values: Any,
) -> Held:
    if step.converter is not None:
        copy = True if step.cost == "copy" and step.converter.cost == "share" else options.copy
        if options.copy is False and (held.private or step.cost != "share"):
            raise CopyRequiredError(
                f"memory cannot be shared: {_why(source, after)}", remedy=_PASS_COPY
            )
        if not step.converter.takes(type(held.value)):
            raise _UnservedError(step.converter)
        try:
            value = step.converter.convert(held.value, device, copy)
        except Exception:
            value = NotImplemented
        if value is NotImplemented:
            raise _UnservedError(step.converter)
        return Held(value, private=step.cost != "share", constant=after.memory == "immutable")
    if step.via == "device":
        return Held(before.to_device(held.value, device), private=True)
    if step.via == "dlpack":
        return _hand_over(held, before, after, device, options)
    if step.target == _HOST and before.name != "numpy":
        first = held.value is x and before is source
        out = leave(held.value, before, step.source.device == "cpu", values if first else None)
        out = Held(out.value, out.private or held.private, out.constant and not held.private)
        return (
            enter(out, held.value, before, after, None, options) if after.name == "numpy" else out
        )
    if held.value is x:
        held = leave(x, before, device_is_host=True, values=values)
    return enter(held, x, source, after, device, options)


def _why(source: Backend, target: Backend) -> str:
    constant = source.memory in ("immutable", "lazy")
    broken = promise_broken(source, target, constant=constant, readonly=False)
    return broken or "a copy is made on the way"


def _hand_over(held: Held, before: Backend, after: Backend, device: Any, options: Options) -> Held:
    """Share by DLPack; where a copy is needed, make it on the side whose arrays can be written."""
    broken = promise_broken(before, after, constant=before.memory == "immutable", readonly=False)
    if options.copy is False and broken:
        raise CopyRequiredError(f"memory cannot be shared: {broken}", remedy=_PASS_COPY)
    copying = not held.private and (options.copy is True or bool(broken))
    x = held.value
    dtypes = after.dtypes()
    if dtypes is not None and str(x.dtype).rpartition(".")[2] not in dtypes:
        raise _UnservedError("dlpack")
    try:
        if copying and after.memory != "writable":
            x = before.copy(x)
        y = after.from_dlpack(before.to_dlpack(x), device)
        if copying and after.memory == "writable":
            y = after.copy(y)
    except Exception as error:
        raise _UnservedError("dlpack") from error
    return Held(y, held.private or copying, before.memory == "immutable")


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
