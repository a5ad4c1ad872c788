"""Task: how arrays travel between libraries."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points

from arrayferry import ArrayFerryError, Backend, Route, UnknownBackendError, registry, route
from arrayferry.inspection import ENTRY_POINT_GROUP, Origin, Step, device_kind, route_between
from arrayferry_cli._reports import PluginOrigin, RouteReport, RouteStep, Unanswerable, Unusable


def answer(
    source: str | None, target: str | None, failures: dict[str, str]
) -> Iterator[Unanswerable | Unusable | RouteReport]:
    """Yield what cannot be used, or an error, and then a message for each route.

    Args:
        source: a name; None for all libraries.
        target: a name; None for all libraries, in both directions if there is a source.
        failures: the errors of libraries that crash or hang when they are imported, by name.
    """
    start = None if source is None else _origin(source)
    end = None if target is None else registry.backend(target)
    for part in (start, end):
        if part is not None and part.name in failures:
            yield Unanswerable(failures[part.name], False)
            return
    if start is not None and end is not None:
        route(start, end)  # which raises the errors that users know
        for each in _by_device(start, end):
            yield _describe(*each)
        return
    one = None if start is None else _usable(start)
    known = []
    for backend in registry.backends().values():
        problem = failures.get(backend.name) or backend.problem()
        if problem is None:
            known.append(backend)
        else:
            yield Unusable(backend.name, backend.installed, str(problem))
    for left_out in registry.catalog.left_out:
        if left_out.broken:
            yield Unusable(left_out.name, True, left_out.why)
    pairs: list[tuple[Origin, Backend]] = [(a, b) for a in known for b in known]
    if one is not None:
        others = [b for b in known if b.name != one.name]
        pairs = [(one, b) for b in others]
        pairs += [(b, one) for b in others if isinstance(one, Backend)]
    for a, b in pairs:
        here = _devices(a)[0]
        yield _describe(a, b, here, route_between(a, b, source_device=here))


def _origin(name: str) -> Origin:
    named: list[Origin] = [source for source in registry.sources() if source.name == name]
    if named:
        return named[0]
    try:
        return registry.backend(name)
    except UnknownBackendError:
        for source in registry.sources():
            if name == source.package:
                return source
        raise


def _usable(origin: Origin) -> Origin:
    problem = origin.problem()
    if problem is not None:
        raise problem
    return origin


def _devices(origin: Origin) -> list[str]:
    return [str(d) for d in origin.devices()] if isinstance(origin, Backend) else ["cpu"]


def _by_device(a: Origin, b: Backend) -> Iterator[tuple[Origin, Backend, str, Route]]:
    """Yield the routes from each kind of device of a: to the default device, and to each kind of device of b."""
    seen = set()
    for here in _one_of_each_kind(_devices(a)):
        for there in (None, *_one_of_each_kind(_devices(b))):
            path = route_between(a, b, source_device=here, device=there)
            if (path.source, path.target) not in seen:
                seen.add((path.source, path.target))
                yield a, b, here, path


def _one_of_each_kind(devices: list[str]) -> list[str]:
    return list({device_kind(name): name for name in reversed(devices)}.values())[::-1]


def _describe(a: Origin, b: Backend, here: str, path: Route) -> RouteReport:
    return RouteReport(
        source=a.name,
        target=b.name,
        source_device=device_kind(path.source.device),
        target_device=device_kind(path.target.device),
        copies=path.copies,
        transfers=path.transfers,
        computes=path.computes,
        steps=[_step(step, a) for step in path.steps],
        text=str(path),
    )


def _step(step: Step, origin: Origin) -> RouteStep:
    converter = step.converter
    by = _origin_of(origin if converter is None else converter)
    return RouteStep(
        source=step.source.backend,
        source_device=device_kind(step.source.device),
        target=step.target.backend,
        target_device=device_kind(step.target.device),
        cost=step.cost,
        via=step.via,
        converter=None if converter is None else type(converter).__qualname__,
        plugin=by if step.via == "converter" else None,
        methods=_methods(step),
    )


def _methods(step: Step) -> list[str]:
    """Return the methods of plugins that do a step."""
    a, b = step.source.backend, step.target.backend
    if step.converter is not None:
        return [f"{type(step.converter).__qualname__}.convert"]
    if step.via == "dlpack":
        return [f"{_class(a)}.to_dlpack", f"{_class(b)}.from_dlpack"]
    if step.via == "device":
        return [f"{_class(a)}.to_device"]
    return [f"{_class(b)}.from_numpy" if a == "numpy" else f"{_class(a)}.to_numpy"]


def _class(name: str) -> str:
    try:
        return type(_origin(name)).__qualname__
    except ArrayFerryError:
        return name


def _origin_of(part: object) -> PluginOrigin:
    """Return the distribution whose entry point leads to the module of a part."""
    module = type(part).__module__
    top = module.partition(".")[0]
    points = [p for p in entry_points(group=ENTRY_POINT_GROUP) if p.module.partition(".")[0] == top]
    own = [p for p in points if f"{module}.".startswith(f"{p.module}.")]  # it may be a package
    dist = (own or points)[0].dist if points else None
    return PluginOrigin(
        name=own[0].name if own else None,
        module=own[0].module if own else module,
        distribution=None if dist is None else dist.name,
        version=None if dist is None else dist.version,
    )
