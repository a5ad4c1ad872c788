"""`arrayferry doctor`: what is installed here, whether it works, and what to do about what does not."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Literal

from ._recovery import Answers, Question, ask_each, survey
from ._reports import DoctorReport, Doing, Facts, Library, Part, Plugin
from ._screen import Screen

SCHEMA = 1
PARTS = ("arrayferry", "numpy", "array-api-compat", "pluggy", "gymnasium")
SETTINGS = ("ARRAYFERRY_PLUGINS", "ARRAYFERRY_DISABLE_AUTOLOAD")


def examine(timeout: float, tell: Callable[[str], None]) -> DoctorReport:
    """Look at everything, each library in a process of its own.

    Args:
        timeout: seconds that each may take.
        tell: called with what is being done.
    """
    tell("looking for plugins")
    surveyed = survey(timeout)
    overview = surveyed.survey
    known: list[tuple[Literal["backend", "source"], Part]] = [
        *(("backend", part) for part in overview.backends),
        *(("source", part) for part in overview.sources),
    ]
    questions = {
        _looked_at(kind, part): Question(
            kind, {"name": _looked_at(kind, part)[1]}, surveyed.environment
        )
        for kind, part in known
        if part.installed
    }
    tell(f"importing {len(questions)} libraries")
    answers = ask_each(questions.values(), timeout)
    facts = dict(zip(questions, map(_facts, answers), strict=True))
    distributions = packages_distributions()
    libraries = [
        _library(part, kind, distributions, facts.get(_looked_at(kind, part)))
        for kind, part in known
    ]
    faulty = any(plugin.faulty for plugin in overview.plugins)
    unusable = any(library.status == "not usable" for library in libraries)
    return DoctorReport(
        schema=SCHEMA,
        ok=not (overview.problems or faulty or unusable),
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        platform=platform.platform(),
        versions={name: _version(name) for name in PARTS},
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        libraries=libraries,
        plugins=overview.plugins,
        problems=overview.problems,
    )


def _looked_at(kind: str, part: Part) -> tuple[str, str]:
    """Return the task that looks at a library, and its argument. Several sources may share one package."""
    return kind, part.name if kind == "backend" else part.package


def _facts(answers: Answers) -> Facts:
    """Return what was seen of a library, even if it crashed."""
    if answers.failure is None:
        facts: Facts = answers.messages[-1]
        return facts
    doing = Doing("importing it", "Update or reinstall it.")
    for message in answers.messages:
        doing = message
    return Facts(problem=f"{doing.step} failed: {answers.failure}", remedy=doing.remedy)


def _library(
    part: Part,
    kind: Literal["backend", "source"],
    distributions: Mapping[str, list[str]],
    facts: Facts | None,
) -> Library:
    distribution = _distribution(part.package.partition(".")[0], distributions)
    library = Library(
        name=part.name,
        kind=kind,
        package=part.package,
        plugin=part.plugin,
        status="not installed",
        distribution=distribution,
        version=None if distribution is None else _version(distribution),
        devices=[],
        float64=None,
        problem=None,
        remedy=part.remedy,
    )
    if facts is not None:
        library.status = "usable" if facts.problem is None else "not usable"
        library.version = library.version or " ".join((facts.version or "").split()) or None
        library.devices, library.float64 = facts.devices, facts.float64
        library.problem, library.remedy = facts.problem, facts.remedy
    return library


def _distribution(package: str, distributions: Mapping[str, list[str]]) -> str | None:
    names = list(dict.fromkeys(distributions.get(package, ())))
    return package if package in names else next(iter(names), None)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def show(report: DoctorReport, screen: Screen) -> None:
    """Print a report, for people and for bug reports."""
    versions = [f"{name} {number or 'not installed'}" for name, number in report.versions.items()]
    screen.say(", ".join(versions))
    screen.say(f"Python {report.python} ({report.implementation}), {report.platform}")
    for name, value in report.settings.items():
        screen.say(f"{name}={value}")
    screen.heading("Libraries")
    _show_libraries(report.libraries, screen)
    screen.heading("Plugins")
    _show_plugins(report.plugins, screen)
    _show_faults(report, screen)


def _show_libraries(libraries: list[Library], screen: Screen) -> None:
    rows = [
        [
            library.name,
            library.version or "",
            library.status,
            ", ".join(library.devices),
            {True: "yes", False: "no", None: ""}[library.float64],
        ]
        for library in libraries
        if library.kind == "backend"
    ]
    if rows:
        screen.table(["", "version", "status", "devices", "float64"], rows)
    else:
        screen.say("none: no plugin with an array library is loaded", indent=2)
    sources = {
        library.package.partition(".")[0]: library.version or ""
        for library in libraries
        if library.kind == "source" and library.status == "usable"
    }
    if sources:
        read = ", ".join(f"{name} {number}".strip() for name, number in sorted(sources.items()))
        screen.say(f"read from: {read}", indent=2)


def _show_plugins(plugins: list[Plugin], screen: Screen) -> None:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for plugin in plugins:
        home = f"{plugin.distribution or 'no distribution'} {plugin.version or ''}".strip()
        groups.setdefault((home, plugin.origin, plugin.status), []).append(plugin.name)
    for (home, origin, status), group in groups.items():
        several = f"{len(group)} entry points" if len(group) > 1 else "entry point"
        origin = several if origin == "entry point" else origin
        screen.say(f"{home}, {origin}, {status}: {', '.join(group)}", indent=2)
    if not groups:
        screen.say("none", indent=2)


def _show_faults(report: DoctorReport, screen: Screen) -> None:
    faults: list[tuple[str, Plugin | Library]] = [
        *((f"plugin {plugin.name}", plugin) for plugin in report.plugins if plugin.faulty),
        *(
            (f"library {library.name}", library)
            for library in report.libraries
            if library.status == "not usable"
        ),
    ]
    if not faults and not report.problems:
        screen.say()
        screen.say("Nothing is broken.", style="green")
        return
    screen.heading("Broken")
    for name, part in faults:
        screen.say(f"{name}: {part.problem}", indent=2)
        if part.remedy:
            screen.say(part.remedy, indent=4)
    for text in report.problems:
        screen.say(text, indent=2)
