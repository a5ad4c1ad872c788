"""Task: which plugins are installed, what each gives, and what is wrong with them. No library is imported for it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from arrayferry import ArrayFerryError, Container, Converter, registry
from arrayferry.inspection import ENTRY_POINT_GROUP, chosen_plugins, load_parts

__all__ = ["answer", "describe_point", "how_to_fix"]


def answer(names: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield one message.

    Args:
        names: the entry points to load; None for those that the environment allows.
    """
    chosen = chosen_plugins()
    if names is None or chosen == []:
        names = chosen
    points = sorted(set(entry_points(group=ENTRY_POINT_GROUP)), key=lambda point: point.name)
    plugins = [_load(p) if names is None or p.name in names else describe_point(p) for p in points]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        backends, sources = dict(registry.backends()), list(registry.sources())
        registry.check_converters()
    faults = [part for part in registry.catalog.left_out if part.broken]
    told = {part.why for part in faults}
    texts = dict.fromkeys(str(warning.message) for warning in caught)
    problems = [text for text in texts if text not in told]
    for part in faults:
        for plugin in plugins:
            if plugin["status"] == "loaded" and _is(plugin, part.point):
                home = plugin["distribution"] or plugin["module"]
                remedy = f"Give it other names, or list the other one in its `replaces`, or uninstall {home}."
                plugin.update(status="left out", problem=part.why, remedy=remedy)
    plugins += _registered(plugins, list(backends), [source.name for source in sources])
    yield {
        "plugins": plugins,
        "problems": problems,
        "backends": [_origin(backend, plugins, "backends") for backend in backends.values()],
        "sources": [_origin(source, plugins, "sources") for source in sources],
    }


def describe_point(point: EntryPoint) -> dict[str, Any]:
    """Return what is known of a plugin before it is loaded."""
    return {
        "name": point.name,
        "module": point.value,
        "distribution": point.dist.name if point.dist is not None else None,
        "version": point.dist.version if point.dist is not None else None,
        "origin": "entry point",
        "status": "not loaded",
        "backends": [],
        "converters": [],
        "containers": [],
        "sources": [],
        "problem": None,
        "remedy": None,
    }


def how_to_fix(plugin: dict[str, Any]) -> str:
    """Say what to do about a plugin that cannot be loaded."""
    module = plugin["module"].partition(":")[0]
    return f"Fix {module}, or update or uninstall {plugin['distribution'] or 'it'}."


def _load(point: EntryPoint) -> dict[str, Any]:
    plugin = describe_point(point)
    try:
        found = load_parts(point)
    except ArrayFerryError as error:
        remedy = error.remedy or how_to_fix(plugin)
        return {**plugin, "status": "broken", "problem": error.reason, "remedy": remedy}
    return {
        **plugin,
        "status": "loaded",
        **{key: [_name(part) for part in parts] for key, parts in found.items()},
    }


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def _is(plugin: dict[str, Any], point: EntryPoint | None) -> bool:
    return point is not None and (point.name, point.value) == (plugin["name"], plugin["module"])


def _registered(
    plugins: list[dict[str, Any]], backends: list[str], sources: list[str]
) -> list[dict[str, Any]]:
    """Describe what was registered at run time, as by a module that Python imports at its start."""
    found = []
    for key, names in (("backends", backends), ("sources", sources)):
        known = {name for plugin in plugins for name in plugin[key]}
        for name in names:
            if name not in known:
                plugin = describe_point(EntryPoint(name, "", ENTRY_POINT_GROUP))
                plugin.update(origin="registered", status="loaded", module=None)
                plugin[key] = [name]
                found.append(plugin)
    return found


def _origin(part: Any, plugins: list[dict[str, Any]], key: str) -> dict[str, Any]:
    owners = [p["name"] for p in plugins if p["status"] == "loaded" and part.name in p[key]]
    try:
        installed = bool(part.installed)
    except Exception:  # which problem() tells later
        installed = True
    remedy = None if installed else f"pip install {part.install or part.name}"
    return {
        "name": part.name,
        "names": [getattr(part, "namespace", ""), part.package, *getattr(part, "aliases", ())],
        "package": part.package,
        "plugin": owners[0] if owners else None,
        "installed": installed,
        "remedy": remedy,
    }
