"""A plugin together with only the built-in ones, so that no other installed plugin affects its tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest

from arrayferry._errors import PluginWarning
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import CHOICE, GROUP, chosen_plugins, is_ours
from arrayferry._registry.registry import default_registry


def find_backend(name: str) -> Backend:
    """Find a backend by name. No warning is issued for plugins that are left out because of a fault.

    Raises:
        UnknownBackendError: no backend has this name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return default_registry().backend(name)


@contextmanager
def only_plugins(tested: Origin, others: Sequence[str] = ()) -> Iterator[None]:
    """Load only the built-in plugins, those of the distribution of a part, and those of some others.

    Parts that were registered at run time stay. Nothing is reloaded if no other plugin is installed.

    Args:
        tested: the backend or source under test.
        others: names of further backends.
    """
    points = list(entry_points(group=GROUP))
    parts = (tested, *map(find_backend, others))
    wanted = {_top(type(part).__module__) for part in parts}
    homes = {_home(p) for p in points if _top(p.module) in wanted}
    chosen = chosen_plugins()
    if chosen is not None:
        points = [point for point in points if point.name in chosen]
    kept = [p for p in points if is_ours(p) or _top(p.module) in wanted or _home(p) in homes]
    if len(kept) == len(points):
        yield
        return
    registry = default_registry()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CHOICE, ",".join(point.name for point in kept))
            registry.refresh()
            yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PluginWarning)  # issued again on use
            registry.refresh()


@contextmanager
def usable(part: Any, *, register: bool) -> Iterator[None]:
    """Register a part during a test if needed, and skip the test if the library cannot be used here."""
    if register:
        default_registry().register(part)
    try:
        problem = part.problem()
        if problem is not None:
            pytest.skip(str(problem))
        yield
    finally:
        if register:
            default_registry().unregister(part)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _home(point: EntryPoint) -> str:
    """Return the distribution of a plugin, or its module if it has no distribution."""
    return point.dist.name if point.dist is not None else point.module
