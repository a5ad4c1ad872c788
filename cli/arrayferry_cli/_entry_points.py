"""The entry points of plugins, and what their metadata say. None is loaded."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from arrayferry.inspection import ENTRY_POINT_GROUP, chosen_plugins

Plugin = dict[str, Any]
"""What is known of a plugin, as `arrayferry doctor --json` prints it."""


def all_points() -> list[EntryPoint]:
    """Return the entry points of all plugins that are installed."""
    return sorted(set(entry_points(group=ENTRY_POINT_GROUP)), key=lambda point: point.name)


def chosen_points() -> list[EntryPoint]:
    """Return the entry points that the environment variables do not leave out."""
    names = chosen_plugins()
    return [point for point in all_points() if names is None or point.name in names]


def home(point: EntryPoint) -> str | None:
    """Return the name of the distribution of a plugin."""
    return None if point.dist is None else point.dist.name


def describe(point: EntryPoint) -> Plugin:
    """Return what is known of a plugin before it is loaded."""
    version = None if point.dist is None else point.dist.version
    known = {"name": point.name, "module": point.value, "distribution": home(point)}
    state = {"origin": "entry point", "status": "not loaded", "problem": None, "remedy": None}
    parts: Plugin = {"backends": [], "converters": [], "containers": [], "sources": []}
    return {**known, "version": version, **state, **parts}


def describe_broken(point: EntryPoint, problem: str, remedy: str = "") -> Plugin:
    """Return what is known of a plugin that cannot be loaded."""
    fix = f"Fix {point.module}, or update or uninstall {home(point) or 'it'}."
    return {**describe(point), "status": "broken", "problem": problem, "remedy": remedy or fix}
