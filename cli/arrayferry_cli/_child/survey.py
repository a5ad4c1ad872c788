"""Task: which plugins are installed, what each gives, and what is wrong with them. No library is imported for it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from arrayferry import Container, Converter
from arrayferry._errors import ArrayFerryError
from arrayferry._registry.discovery import (
    GROUP,
    Plugin,
    contributions,
    describe_failure,
    is_disabled,
)
from arrayferry._registry.registry import default_registry

__all__ = ["answer", "describe_point", "how_to_fix"]


def answer(names: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield one message.

    Args:
        names: the entry points to load; None for those that the environment allows.
    """
    chosen = os.environ.get("ARRAYFERRY_PLUGINS")
    if is_disabled():
        names = []
    elif names is None and chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
    points = sorted(set(entry_points(group=GROUP)), key=lambda point: point.name)
    plugins = [_load(p) if names is None or p.name in names else describe_point(p) for p in points]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        registry = default_registry()
        backends, sources = dict(registry.backends()), list(registry.sources())
        registry.check_converters()
    faults = [part for part in registry.catalog.left_out if part.broken]
    told = {part.why for part in faults}
    texts = dict.fromkeys(str(warning.message) for warning in caught)
    problems = [text for text in texts if text not in told]
    for part in faults:
        for plugin in plugins:
            if plugin["status"] == "loaded" and _is(plugin, part.who):
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
        answers = contributions(point.load(), point.name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        remedy = how_to_fix(plugin)
        plugin.update(status="broken", problem=describe_failure(error, point), remedy=remedy)
        if isinstance(error, ArrayFerryError):
            plugin.update(problem=error.reason, remedy=error.remedy or remedy)
        return plugin
    plugin["status"] = "loaded"
    for answer in answers:
        key = answer.hook.removeprefix("arrayferry_")
        plugin[key] += [_name(part) for part in answer.parts]
    return plugin


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def _is(plugin: dict[str, Any], who: object) -> bool:
    point = who.point if isinstance(who, Plugin) else None
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
                plugin = describe_point(EntryPoint(name, "", GROUP))
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
