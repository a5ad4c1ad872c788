"""Finds and imports the installed plugins, which are entry points of the group `arrayferry`.

This module also decides which plugins are allowed, and which are built in.
"""

from __future__ import annotations

import functools
import os
import re
import weakref
from collections.abc import Callable, Container, Iterable
from importlib.metadata import EntryPoint, entry_points
from itertools import accumulate
from traceback import walk_tb
from typing import Any, NamedTuple

from arrayferry._errors import PluginError, describe_error
from arrayferry._plugin.hookspecs import HOOKS
from arrayferry._plugin.origin import NEVER_CAUGHT
from arrayferry._plugin.types import is_importing

GROUP = "arrayferry"
LAYERS = "arrayferry.hooks"
DISTRIBUTION = "arrayferry"
HOMES = ("arrayferry_plugins.", "arrayferry_suites")
CHOICE = "ARRAYFERRY_PLUGINS"


def chosen_plugins() -> list[str] | None:
    """Return the names of the plugins that the variable `ARRAYFERRY_PLUGINS` selects, or None if it is not set."""
    value = os.environ.get(CHOICE)
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


class Installed(NamedTuple):
    """The installed plugins, which are imported but not yet registered.

    Attributes:
        plugins: for each plugin, its entry point, the plugin, and the error of its import. One of the last two is None.
        blocked: the names of plugins that must not be loaded.
        unfinished: the names of plugins that are still being imported, by a caller or by another thread. They are
            registered later.
    """

    plugins: list[tuple[EntryPoint, Any, BaseException | None]]
    blocked: set[str]
    unfinished: set[str]


def import_plugins(entries: Any, blocked: Container[str], warn: Callable[[str], None]) -> Installed:
    """Import the installed plugins.

    The caller must not hold the lock of a registry. An import waits for another thread that imports the same module,
    and that module may wait for the lock.

    Args:
        entries: all installed entry points.
        blocked: the names of plugins that the user has blocked.
        warn: a function to call with the text of a warning.
    """
    installed = Installed([], set(), set())
    for point, is_allowed in installed_plugins(entries, warn):
        if not is_allowed or point.name in blocked:
            installed.blocked.add(point.name)
            continue
        plugin = error = None
        needed_modules = [point.value.partition(":")[0].strip()]
        try:
            plugin = point.load()
        except NEVER_CAUGHT:
            raise
        except BaseException as load_error:
            error = load_error
            needed_modules = [*accumulate(needed_modules[0].split("."), "{}.{}".format)]
        if is_importing(needed_modules):
            installed.unfinished.add(point.name)
        else:
            installed.plugins.append((point, plugin, error))
    return installed


def installed_plugins(entries: Any, warn: Callable[[str], None]) -> list[tuple[EntryPoint, bool]]:
    """Return the entry point of each installed plugin, and whether `ARRAYFERRY_PLUGINS` allows loading it.

    If this variable is empty, the list is empty, so no plugin is loaded and no name is blocked.
    Built-in plugins are first in the list, then all others in reverse order of their names, since pluggy calls the
    last registered plugin first.

    Args:
        entries: all installed entry points.
        warn: a function to call with the text of a warning.
    """
    chosen_names = chosen_plugins()
    if chosen_names == []:
        return []
    points = sorted(set(entries.select(group=GROUP)), key=lambda point: point.value)
    points.sort(key=lambda point: point.name, reverse=True)
    points.sort(key=is_ours, reverse=True)
    names = [point.name for point in points]
    for name in chosen_names or ():
        if name not in names:
            import difflib

            nearest_names = difflib.get_close_matches(name, names, n=1)
            hint = f" Did you mean {nearest_names[0]!r}?" if nearest_names else ""
            warn(f"{CHOICE} names {name!r}, but no plugin of that name is installed.{hint}")
    return [(point, chosen_names is None or point.name in chosen_names) for point in points]


def announced_hooks(
    entries: Any = None, warn: Callable[[str], object] = str
) -> dict[str, EntryPoint]:
    """Return the hooks that installed layers announce, and for each hook the entry point of the class of its parts.

    A layer is a package that builds on arrayferry and has its own hooks. No module is imported. If several
    layers announce a hook of the same name, the layer in the distribution of arrayferry is used. If there is none, the
    layer whose class has the alphabetically first path is used.

    Args:
        entries: all installed entry points, or None to look for them.
        warn: a function to call with the text of a warning.
    """
    hooks: dict[str, EntryPoint] = {}
    entries = entry_points() if entries is None else entries
    points = sorted(set(entries.select(group=LAYERS)), key=lambda point: point.value)
    for point in sorted(points, key=lambda point: not _is_arrayferry(point.dist)):
        hook = point.name
        if hook in HOOKS or hook in hooks:
            owner = hooks.get(hook)
            by = f"announced by {owner.value} of {_home(owner)}" if owner else "part of arrayferry"
            warn(
                f"arrayferry does not use the hook {hook} of {point.value} of {_home(point)}, "
                f"since a hook of this name is {by}"
            )
        else:
            hooks[hook] = point
    return hooks


def describe_plugin(name: str, point: EntryPoint | None) -> str:
    """Describe a plugin for messages, by its name and, if it is installed, by its distribution."""
    if point is None:
        return name
    return f"the plugin {name!r} of {_home(point)}"


def _home(point: EntryPoint) -> str:
    dist = point.dist  # reading `dist` is slow, so it is read only for messages
    return f"the distribution {dist.name}" if dist is not None else "an unknown distribution"


def describe_failure(error: BaseException, point: EntryPoint | None) -> str:
    """Describe an error that a plugin raised, with the line of the plugin that failed."""
    if isinstance(error, PluginError):
        return str(error).rstrip(".")
    top_package = _top(point) if point else ""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == top_package
    ]
    place = f", at {os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""
    return f"{' '.join(describe_error(error).split()).rstrip(' .')}{place}"


_built_in: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The parts of built-in plugins, by `id` and not in a set, since the class of a part may define `__eq__`."""


def trust(parts: Iterable[object]) -> None:
    """Record that parts come from a plugin included in arrayferry."""
    _built_in.update({id(part): part for part in parts})


def is_built_in(part: object) -> bool:
    """Return whether a part comes from a plugin included in arrayferry.

    The result does not depend on anything that a plugin says about itself, such as the names of its classes.
    """
    return _built_in.get(id(part)) is part


def is_ours(point: EntryPoint) -> bool:
    """Return whether an entry point belongs to the distribution of arrayferry itself."""
    return point.value.startswith(HOMES) and _is_arrayferry(point.dist)


def _top(point: EntryPoint) -> str:
    """Return the top-level package that an entry point names. The value of the entry point may be malformed."""
    return point.value.partition(":")[0].partition(".")[0].strip()


@functools.lru_cache(maxsize=8)
def _is_arrayferry(dist: Any) -> bool:
    """Return whether a distribution is named `arrayferry`.

    `dist.name` is not used, since it parses all of the metadata, which takes longer than the rest of the discovery.
    """
    try:
        metadata = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    except Exception:  # the distribution is missing, or its metadata cannot be read
        return False
    name_match = re.search(r"^Name:[ \t]*(\S+)", metadata, re.MULTILINE | re.IGNORECASE)
    return name_match is not None and re.sub(r"[-_.]+", "-", name_match[1]).lower() == DISTRIBUTION
