"""Task: how arrays travel between libraries. No library is imported: their devices are known from earlier tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arrayferry import Backend, Route, registry
from arrayferry.inspection import Origin, Step, device_kind, route_between
from arrayferry_cli._entry_points import all_points, describe


def routes(
    step: Callable[[str], None], pairs: list[list[dict[str, Any]]], every_device: bool
) -> list[dict[str, Any]]:
    """Return the routes from a library to another.

    Args:
        step: called with what is done next.
        pairs: two libraries each, as the tasks `survey` and `library` describe them.
        every_device: whether there is a route for each kind of device, and not only for the default ones.
    """
    step("looking for routes")
    routes: dict[Any, dict[str, Any]] = {}
    for source, target in pairs:
        a, b = _known(source), _known(target)
        assert isinstance(b, Backend)
        heres, theres = source["devices"] or ["cpu"], target["devices"]
        for here in _one_of_each_kind(heres) if every_device else heres[:1]:
            for there in (None, *(_one_of_each_kind(theres) if every_device else ())):
                route = route_between(a, b, source_device=here, device=there)
                routes.setdefault((a, b, route.source, route.target), _describe(route, a))
    return list(routes.values())


def _known(library: dict[str, Any]) -> Origin:
    """Return a library, with the devices that it had in the process that imported it."""
    name, devices, default = (library.get(key) for key in ("name", "devices", "default_device"))
    if library["kind"] == "source":
        return next(source for source in registry.sources() if source.name == name)
    backend = registry.backend(str(name))
    vars(backend).update(devices=lambda: tuple(devices or ()), default_device=lambda: default)
    return backend


def _one_of_each_kind(devices: list[str]) -> list[str]:
    return list({device_kind(name): name for name in reversed(devices)}.values())[::-1]


def _describe(route: Route, source: Origin) -> dict[str, Any]:
    return {
        **_ends(route),
        "copies": route.copies,
        "transfers": route.transfers,
        "computes": route.computes,
        "steps": [
            {**_ends(step), "cost": step.cost, "via": step.via, "by": _by(step, source)}
            for step in route.steps
        ],
        "text": str(route),
    }


def _ends(way: Route | Step) -> dict[str, str]:
    return {
        "source": way.source.backend,
        "source_device": device_kind(way.source.device),
        "target": way.target.backend,
        "target_device": device_kind(way.target.device),
    }


def _by(step: Step, origin: Origin) -> str:
    """Say what does a step: a converter, or methods of plugins."""
    if step.converter is not None:
        kind = type(step.converter)
        return f"by the converter {kind.__qualname__} of {_home(kind.__module__)}"
    a, b = (_class(place.backend, origin) for place in (step.source, step.target))
    if step.via == "dlpack":
        return f"by DLPack, with {a}.to_dlpack() and {b}.from_dlpack()"
    if step.via == "device":
        return f"within the library, by {a}.to_device()"
    return f"by {b}.from_numpy()" if step.source.backend == "numpy" else f"by {a}.to_numpy()"


def _class(name: str, origin: Origin) -> str:
    return type(origin if name == origin.name else registry.backend(name)).__qualname__


def _home(module: str) -> str:
    """Return the module of the plugin that a converter is from, and its distribution."""
    for plugin in map(describe, all_points()):
        if f"{module}.".startswith(f"{plugin['module']}."):  # it may be a package
            return f"{plugin['module']} ({plugin['distribution']} {plugin['version']})"
    return module
