"""Tasks: what plugins provide, and which plugins crash or hang. No library is imported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from arrayferry import ArrayFerryError, Backend, Container, Converter, registry
from arrayferry.inspection import Origin, load_parts
from arrayferry_cli._entry_points import Plugin, chosen_points, describe, describe_broken, home

Announce = Callable[[str], None]


def load(step: Announce, distribution: str | None) -> list[Plugin]:
    """Load the plugins of one distribution, and return what they bring or what is wrong with them.

    Args:
        step: called with what is done next.
        distribution: its name.
    """
    plugins = []
    for point in chosen_points():
        if home(point) == distribution:
            step(f"loading the plugin {point.name}")
            plugins.append(_load(point))
    return plugins


def _load(point: EntryPoint) -> Plugin:
    try:
        loaded = load_parts(point)
    except ArrayFerryError as error:
        return describe_broken(point, error.reason, error.remedy)
    names = {kind: [_name(part) for part in parts] for kind, parts in loaded.items()}
    return {**describe(point), "status": "loaded", **names}


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def survey(step: Announce, plugins: list[Plugin], names: dict[str, str]) -> dict[str, Any]:
    """Return all plugins, all libraries, the libraries of `names`, and the warnings that belong to no plugin.

    Args:
        step: called with what is done next.
        plugins: those that can be loaded.
        names: the names of libraries to look for: of the "source" of arrays, and of their "target".

    Raises:
        UnknownBackendError: there is no library of that name.
    """
    step("loading all plugins together")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        origins: list[Origin] = [*registry.backends().values(), *registry.sources()]
        for text in registry.catalog.unknown_ends:
            registry.warn(text)
    faults = {part.why: part.plugin for part in registry.catalog.left_out if part.broken}
    for why, name in faults.items():
        for plugin in plugins:
            home = plugin["distribution"] or plugin["module"]
            if plugin["name"] == name and re.search(
                rf"distribution {re.escape(home)}(?![-\w])", why
            ):
                remedy = f"Give it other names, or list the other one in its `replaces`, or uninstall {home}."
                plugin.update(status="left out", problem=why, remedy=remedy)
    for origin in origins:
        if all(origin.name not in plugin[_kinds(origin)] for plugin in plugins):
            plugin = describe(EntryPoint(origin.name, "", ""))
            plugin.update(module=None, origin="registered", status="loaded")
            plugins.append({**plugin, _kinds(origin): [origin.name]})
    named = []
    for role, name in names.items():
        step(f"looking for {name}")
        named.append(_source(name) if role == "source" else registry.backend(name))
    texts = dict.fromkeys(str(each.message) for each in caught)
    return {
        "plugins": plugins,
        "libraries": [_describe(origin, plugins) for origin in origins],
        "named": [_describe(origin, plugins) for origin in named],
        "problems": [text for text in texts if text not in faults],
    }


def _kinds(origin: Origin) -> str:
    return "backends" if isinstance(origin, Backend) else "sources"


def _source(name: str) -> Origin:
    """Return the library that arrays are read from, by its name or its package."""
    sources = registry.sources()
    try:
        return next((each for each in sources if each.name == name), None) or registry.backend(name)
    except LookupError:
        for source in sources:
            if source.package == name:
                return source
        raise


def _describe(origin: Origin, plugins: list[Plugin]) -> dict[str, Any]:
    """Return what is known of a library before it is imported."""
    kinds = _kinds(origin)
    owners = [p["name"] for p in plugins if p["status"] == "loaded" and origin.name in p[kinds]]
    try:
        problem = None if origin.installed else origin.problem()
    except Exception:  # it is reported when the library is tried
        problem = None
    names = [origin.name, origin.package, *getattr(origin, "aliases", ())]
    return {
        "name": origin.name,
        "names": [*names, getattr(origin, "namespace", "")],
        "kind": kinds.removesuffix("s"),
        "package": origin.package,
        "plugin": next(iter(owners), None),
        "status": "usable" if problem is None else "not installed",
        "distribution": None,
        "version": None,
        "devices": [],
        "float64": None,
        "problem": None if problem is None else problem.reason,
        "remedy": None if problem is None else problem.remedy,
    }
