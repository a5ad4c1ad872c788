"""Task: which plugins are installed, what they provide, and what is wrong with them. No library is imported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from arrayferry import ArrayFerryError, Container, Converter, registry
from arrayferry.inspection import ENTRY_POINT_GROUP, chosen_plugins, load_parts
from arrayferry_cli._reports import Part, Plugin, Survey


def answer(names: list[str] | None = None) -> Iterator[Survey]:
    """Yield what was found.

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
            if plugin.status == "loaded" and plugin.name == part.plugin:
                home = plugin.distribution or plugin.module
                plugin.status, plugin.problem = "left out", part.why
                plugin.remedy = f"Give it other names, or list the other one in its `replaces`, or uninstall {home}."
    plugins += _registered(plugins, list(backends), [source.name for source in sources])
    yield Survey(
        plugins,
        problems,
        [_describe(backend, plugins, "backends") for backend in backends.values()],
        [_describe(source, plugins, "sources") for source in sources],
    )


def describe_point(point: EntryPoint) -> Plugin:
    """Return what is known of a plugin before it is loaded."""
    home = point.dist
    return Plugin(
        point.name,
        point.value,
        distribution=None if home is None else home.name,
        version=None if home is None else home.version,
    )


def how_to_fix(plugin: Plugin) -> str:
    """Say what to do about a plugin that cannot be loaded."""
    module = (plugin.module or "").partition(":")[0]
    return f"Fix {module}, or update or uninstall {plugin.distribution or 'it'}."


def _load(point: EntryPoint) -> Plugin:
    plugin = describe_point(point)
    try:
        loaded = load_parts(point)
    except ArrayFerryError as error:
        plugin.status, plugin.problem = "broken", error.reason
        plugin.remedy = error.remedy or how_to_fix(plugin)
        return plugin
    plugin.status = "loaded"
    for key, parts in loaded.items():
        setattr(plugin, key, [_name(part) for part in parts])
    return plugin


def _name(part: Any) -> str:
    if isinstance(part, Converter):
        return f"{part.source} -> {part.target}"
    return type(part).__qualname__ if isinstance(part, Container) else str(part.name)


def _registered(plugins: list[Plugin], backends: list[str], sources: list[str]) -> list[Plugin]:
    """Describe what was registered at run time, such as by a module that Python imports at startup."""
    registered = []
    for key, names in (("backends", backends), ("sources", sources)):
        known = {name for plugin in plugins for name in getattr(plugin, key)}
        for name in names:
            if name not in known:
                plugin = Plugin(name, None, None, None, origin="registered", status="loaded")
                setattr(plugin, key, [name])
                registered.append(plugin)
    return registered


def _describe(part: Any, plugins: list[Plugin], key: str) -> Part:
    owners = [p.name for p in plugins if p.status == "loaded" and part.name in getattr(p, key)]
    try:
        installed = bool(part.installed)
    except Exception:  # problem() reports it later
        installed = True
    return Part(
        part.name,
        names=[getattr(part, "namespace", ""), part.package, *getattr(part, "aliases", ())],
        package=part.package,
        plugin=owners[0] if owners else None,
        installed=installed,
        remedy=f"pip install {part.install}" if part.install and not installed else None,
    )
