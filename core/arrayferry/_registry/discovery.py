"""Discovery of plugins in the entry-point group `arrayferry`, each isolated from the others.

If a plugin fails at import or in a hook, even by `sys.exit`, only that plugin is left out. The reason names its
entry point, its distribution and the cause.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
import weakref
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Any

from arrayferry._errors import PluginError, PluginWarning, describe_error

from .contributions import Contribution, LeftOut, Plugin, contributions

GROUP = "arrayferry"
DISTRIBUTION = "arrayferry"
HOME = "arrayferry_plugins"
CHOICE = "ARRAYFERRY_PLUGINS"
DISABLE = "ARRAYFERRY_DISABLE_AUTOLOAD"


def is_disabled() -> bool:
    """Return whether an environment variable disables all installed plugins."""
    return os.environ.get(DISABLE, "") not in ("", "0")


def chosen_plugins() -> list[str] | None:
    """Return the names of the plugins that the environment variables select, None for all installed plugins."""
    if is_disabled():
        return []
    names = os.environ.get(CHOICE)
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def discover() -> tuple[list[Contribution], list[LeftOut]]:
    """Load the plugins of the entry-point group.

    Returns:
        Their parts, and the installed plugins that were not loaded. Parts are sorted by rank; within a rank, those
        of built-in plugins come first, and then names decide.
    """
    if is_disabled():
        return [], []
    installed = set(entry_points(group=GROUP))
    points = sorted(installed, key=lambda point: (not is_ours(point), point.name))
    names = chosen_plugins()
    if names is not None:
        _warn_of_unknown(names, [point.name for point in points])
    found: list[Contribution] = []
    left_out: list[LeftOut] = []
    for point in points:
        plugin = Plugin(point.name, point, built_in=is_ours(point))
        if names is not None and point.name not in names:
            why = "the plugin of that name is installed, but ARRAYFERRY_PLUGINS does not name it"
            left_out.append(LeftOut(point.name, why, plugin, False))
            continue
        try:
            parts = contributions(point.load(), plugin)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = f"arrayferry left out {plugin} ({point.value}): {describe_failure(error, point)}"
            left_out.append(LeftOut(point.name, why, plugin))
            continue
        found += parts
        if plugin.built_in:
            _built_in.update((id(each.part), each.part) for each in parts)
    return sorted(found, key=lambda each: each.rank), left_out


def describe_failure(error: BaseException, point: EntryPoint) -> str:
    """Describe why a plugin was not loaded, with the line that failed."""
    if isinstance(error, PluginError):
        return str(error).rstrip(".")
    top = point.module.partition(".")[0]
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == top
    ]
    where = f", at {os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""
    return f"{' '.join(describe_error(error).split()).rstrip(' .')}{where}"


_built_in: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The parts of built-in plugins, by id, since they may define equality themselves."""


def is_built_in(part: object) -> bool:
    """Return whether a part comes from a plugin included in arrayferry.

    The answer does not depend on anything that a plugin says about itself, such as the names of its classes and modules.
    """
    return _built_in.get(id(part)) is part


def is_ours(point: EntryPoint) -> bool:
    """Return whether an entry point belongs to the distribution of arrayferry itself."""
    inside = point.dist is not None and point.module.partition(".")[0] == HOME
    return inside and _is_arrayferry(point.dist)


@functools.lru_cache(maxsize=8)
def _is_arrayferry(dist: Any) -> bool:
    """Return whether a distribution has the name of arrayferry.

    `dist.name` would parse all of the metadata, which takes longer than the rest of the discovery.
    """
    metadata = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    name = re.search(r"^Name:[ \t]*(\S+)", metadata, re.MULTILINE | re.IGNORECASE)
    return name is not None and re.sub(r"[-_.]+", "-", name[1]).lower() == DISTRIBUTION


def _warn_of_unknown(names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            import difflib

            nearest = difflib.get_close_matches(name, known, n=1)
            guess = f" Did you mean {nearest[0]!r}?" if nearest else ""
            warnings.warn(
                f"ARRAYFERRY_PLUGINS names {name!r}, but no plugin of that name is installed.{guess}",
                PluginWarning,
                stacklevel=3,
            )
