"""Tests a plugin while only that plugin and the built-in plugins are loaded, so that others cannot affect the tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import EntryPoint, entry_points

import pytest

from arrayferry import Backend, PluginWarning, Source, registry
from arrayferry.extending import ENTRY_POINT_GROUP, PLUGINS_VARIABLE, chosen_plugins, is_ours


@contextmanager
def alone(
    find: Callable[[], Backend | Source], others: Sequence[str], parts: Mapping[str, object]
) -> Iterator[None]:
    """During a test, load only the built-in plugins, and the plugins of the packages that define the tested backends.

    Backends that were registered at run time remain registered. The tested backend or source is registered for the
    test if it was not registered before. The test is skipped if its library cannot be used here.

    Args:
        find: returns the backend or source under test.
        others: names of further backends.
        parts: maps the names of hooks to what they return for the backend or source under test.
    """
    points, chosen_names = list(entry_points(group=ENTRY_POINT_GROUP)), chosen_plugins()
    with ExitStack() as undo_stack:
        with _without_warnings():
            part = find()
            registered_before = (*registry.backends().values(), *registry.sources())
            modules = [type(origin).__module__ for origin in (part, *map(registry.backend, others))]
        packages = {module.partition(".")[0] for module in modules}
        homes = {_home(point) for point in points if point.module.partition(".")[0] in packages}
        if chosen_names is not None:
            points = [point for point in points if point.name in chosen_names]
        remaining_points = [point for point in points if is_ours(point) or _home(point) in homes]
        if len(remaining_points) < len(points):
            undo_stack.callback(_reload)
            patch = undo_stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv(PLUGINS_VARIABLE, ",".join(point.name for point in remaining_points))
            _reload()
        # a generic backend has no array types, and cannot be registered
        if part.array_types and all(part is not origin for origin in registered_before):
            registry.register(part, parts=parts)
            undo_stack.callback(registry.unregister, part)
        problem = part.problem()
        if problem is not None:
            pytest.skip(str(problem))
        yield


def _reload() -> None:
    """Load the plugins again now, so that the test itself need not load them."""
    with _without_warnings():
        registry.refresh()
        registry.backends()


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ignore the warnings about faulty plugins, which are not loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        yield


def _home(point: EntryPoint) -> str:
    """Return the name of the package (distribution) of a plugin, or of the plugin's module if there is no package."""
    return point.dist.name if point.dist is not None else point.module
