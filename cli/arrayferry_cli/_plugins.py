"""Which plugins and libraries there are, and whether they can be used: each is tried in a process of its own."""

from __future__ import annotations

from typing import Any

from arrayferry.inspection import chosen_plugins

from ._ask import ask, ask_each
from ._entry_points import Plugin, all_points, chosen_points, describe, describe_broken, home
from ._errors import CommandError

Parts = list[dict[str, Any]]


def survey(timeout: float, **names: str | None) -> dict[str, Any]:
    """Find out which plugins and libraries there are. No library is imported.

    First, the plugins of each distribution are loaded alone. Then all that did not crash or hang are loaded together.

    Args:
        timeout: seconds that loading plugins may take.
        names: the names of libraries to look for: of the "source" of arrays, and of their "target".

    Returns:
        What the task `survey` found, with the `environment` that leaves out plugins that crash or hang.

    Raises:
        CommandError: no library has such a name, or the plugins cannot be loaded together.
    """
    chosen = chosen_points()
    homes = list(dict.fromkeys(map(home, chosen)))
    answers = ask_each("plugins.load", [{"distribution": name} for name in homes], {}, timeout)
    plugins = [describe(point) for point in all_points() if point not in chosen]
    failed = set()
    for name, answer in zip(homes, answers, strict=True):
        if isinstance(answer, CommandError):
            points = [point for point in chosen if home(point) == name]
            plugins += [describe_broken(point, answer.reason) for point in points]
            failed |= {point.name for point in points}
        else:
            plugins += answer
    environment = {}
    if failed:
        allowed = chosen_plugins() or [point.name for point in chosen]
        environment["ARRAYFERRY_PLUGINS"] = ",".join(n for n in allowed if n not in failed)
    loaded = [plugin for plugin in plugins if plugin["status"] == "loaded"]
    wanted = {role: name for role, name in names.items() if name is not None}
    found = ask("plugins.survey", {"plugins": loaded, "names": wanted}, environment, timeout)
    found["plugins"] += [plugin for plugin in plugins if plugin["status"] != "loaded"]
    found["plugins"].sort(key=lambda plugin: plugin["name"])
    return {**found, "environment": environment}


def is_faulty(plugin: Plugin) -> bool:
    """Return whether a plugin cannot be used."""
    return plugin["status"] in ("broken", "left out")


def try_libraries(libraries: Parts, found: dict[str, Any], timeout: float) -> None:
    """Import each installed library, and add to its entry what is then known.

    Args:
        libraries: those to try.
        found: the survey that they are from.
        timeout: seconds that each library may take.
    """
    tried: dict[Any, Parts] = {}  # several sources may share one package
    for library in libraries:
        if library["status"] != "not installed":
            name = library["name" if library["kind"] == "backend" else "package"]
            tried.setdefault((library["kind"], name), []).append(library)
    arguments = [{"kind": kind, "name": name} for kind, name in tried]
    answers = ask_each("library.examine", arguments, found["environment"], timeout)
    for group, answer in zip(tried.values(), answers, strict=True):
        facts = answer
        if isinstance(answer, CommandError):
            remedy = answer.remedy or None
            facts = {"status": "not usable", "problem": answer.reason, "remedy": remedy}
        for library in group:
            library.update(facts)
