"""`arrayferry doctor`: what is installed here, whether it works, and what to do about what does not."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from typing import Any

from ._ask import NoAnswerError, ask, in_parallel
from ._child.survey import describe_point, how_to_fix
from ._screen import Screen

__all__ = ["examine", "show", "survey"]

SCHEMA = 1
PARTS = ("arrayferry", "numpy", "array-api-compat", "pluggy", "gymnasium")
SETTINGS = ("ARRAYFERRY_PLUGINS", "ARRAYFERRY_DISABLE_AUTOLOAD")


def examine(timeout: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Look at everything, each library in a process of its own.

    Args:
        timeout: seconds that each may take.
        tell: called with what is being done.

    Returns:
        The report, as `--json` prints it.
    """
    tell("looking for plugins")
    found, environment = survey(timeout)
    distributions = packages_distributions()
    known = [(kind, each) for kind in ("backend", "source") for each in found[f"{kind}s"]]
    installed = list(dict.fromkeys(_looked_at(*part) for part in known if part[1]["installed"]))

    def look(part: tuple[str, str]) -> dict[str, Any]:
        kind, name = part
        told: dict[str, Any] = {"step": "importing it", "remedy": "Update or reinstall it."}
        try:
            for answer in ask(kind, timeout=timeout, environment=environment, name=name):
                told = answer
        except NoAnswerError as error:
            return {"problem": f"{told['step']} failed: {error}", "remedy": told["remedy"]}
        return told

    tell(f"importing {len(installed)} libraries")
    facts = dict(zip(installed, in_parallel(look, installed), strict=True))
    libraries = [
        _library(each, kind, distributions, facts.get(_looked_at(kind, each)))
        for kind, each in known
    ]
    broken = [p for p in found["plugins"] if p["status"] in ("broken", "left out")]
    unusable = [library for library in libraries if library["status"] == "not usable"]
    return {
        "schema": SCHEMA,
        "ok": not (found["problems"] or broken or unusable),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in PARTS},
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "libraries": libraries,
        "plugins": found["plugins"],
        "problems": found["problems"],
    }


def _looked_at(kind: str, library: dict[str, Any]) -> tuple[str, str]:
    """Return the task that looks at a library, and its argument: several sources may be of one package."""
    return (kind, library["name"] if kind == "backend" else library["package"])


def survey(timeout: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Find out which plugins there are. Plugins that hang or crash are loaded one by one, and left out.

    Returns:
        What the task `survey` answers, and the environment variables that leave out what hangs or crashes.

    Raises:
        NoAnswerError: not even the other plugins can be loaded.
    """
    try:
        (found,) = ask("survey", timeout=timeout)
        return found, {}
    except NoAnswerError:
        pass
    points = sorted(set(entry_points(group="arrayferry")), key=lambda point: point.name)
    chosen = os.environ.get("ARRAYFERRY_PLUGINS")
    names = [
        p.name for p in points if chosen is None or p.name in chosen.replace(" ", "").split(",")
    ]

    def attempt(name: str) -> str | None:
        only = {"ARRAYFERRY_PLUGINS": name}
        try:
            list(ask("survey", timeout=timeout, environment=only, names=[name]))
        except NoAnswerError as error:
            return f"loading it failed: {error}"
        return None

    names = list(dict.fromkeys(names))
    failures = dict(zip(names, in_parallel(attempt, names), strict=True))
    good = [name for name in names if failures[name] is None]
    environment = {"ARRAYFERRY_PLUGINS": ",".join(good)}
    (found,) = ask("survey", timeout=timeout, environment=environment, names=good)
    kept = [plugin for plugin in found["plugins"] if failures.get(plugin["name"]) is None]
    for point in points:
        failure = failures.get(point.name)
        if failure is not None:
            plugin = describe_point(point)
            plugin.update(status="broken", problem=failure, remedy=how_to_fix(plugin))
            kept.append(plugin)
    return {**found, "plugins": sorted(kept, key=lambda plugin: plugin["name"])}, environment


def _library(
    found: dict[str, Any],
    kind: str,
    distributions: Any,
    facts: dict[str, Any] | None,
) -> dict[str, Any]:
    distribution = _distribution(found["package"].partition(".")[0], distributions)
    library = {
        "name": found["name"],
        "kind": kind,
        "package": found["package"],
        "plugin": found["plugin"],
        "status": "not installed",
        "distribution": distribution,
        "version": None if distribution is None else _version(distribution),
        "devices": [],
        "float64": None,
        "problem": None,
        "remedy": found["remedy"],
    }
    if facts is not None:
        known = library["version"]
        library.update(facts)
        library["version"] = known or " ".join((facts.get("version") or "").split()) or None
        library["status"] = "usable" if facts["problem"] is None else "not usable"
    return library


def _distribution(package: str, distributions: Any) -> str | None:
    names = list(dict.fromkeys(distributions.get(package, ())))
    return package if package in names else next(iter(names), None)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def show(report: dict[str, Any], screen: Screen) -> None:
    """Print a report for people, and for issues."""
    versions = [f"{name} {found or 'not installed'}" for name, found in report["versions"].items()]
    screen.say(", ".join(versions))
    screen.say(f"Python {report['python']} ({report['implementation']}), {report['platform']}")
    for name, value in report["settings"].items():
        screen.say(f"{name}={value}")
    screen.heading("Libraries")
    backends = [library for library in report["libraries"] if library["kind"] == "backend"]
    rows = [
        [
            library["name"],
            library["version"] or "",
            library["status"],
            ", ".join(library["devices"]),
            {True: "yes", False: "no", None: ""}[library["float64"]],
        ]
        for library in backends
    ]
    if rows:
        screen.table(["", "version", "status", "devices", "float64"], rows)
    else:
        screen.say("none: no plugin with an array library is loaded", indent=2)
    sources = {
        library["package"].partition(".")[0]: library["version"] or ""
        for library in report["libraries"]
        if library["kind"] == "source" and library["status"] == "usable"
    }
    if sources:
        read = ", ".join(f"{name} {found}".strip() for name, found in sorted(sources.items()))
        screen.say(f"read from: {read}", indent=2)
    screen.heading("Plugins")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for plugin in report["plugins"]:
        home = f"{plugin['distribution'] or 'no distribution'} {plugin['version'] or ''}".strip()
        groups.setdefault((home, plugin["origin"], plugin["status"]), []).append(plugin["name"])
    for (home, origin, status), group in groups.items():
        several = f"{len(group)} entry points" if len(group) > 1 else "entry point"
        origin = several if origin == "entry point" else origin
        screen.say(f"{home}, {origin}, {status}: {', '.join(group)}", indent=2)
    if not groups:
        screen.say("none", indent=2)
    faults = [
        (f"{what} {part['name']}", part)
        for what, parts, bad in (
            ("plugin", report["plugins"], ("broken", "left out")),
            ("library", report["libraries"], ("not usable",)),
        )
        for part in parts
        if part["status"] in bad
    ]
    if not faults and not report["problems"]:
        screen.say()
        screen.say("Nothing is broken.", style="green")
        return
    screen.heading("Broken")
    for name, part in faults:
        screen.say(f"{name}: {part['problem']}", indent=2)
        if part["remedy"]:
            screen.say(part["remedy"], indent=4)
    for text in report["problems"]:
        screen.say(text, indent=2)
