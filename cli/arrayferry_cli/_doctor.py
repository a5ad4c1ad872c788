"""`arrayferry doctor`: shows which libraries and plugins are installed, which do not work, and the remedies."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions

from arrayferry.extending import PLUGINS_VARIABLE

from ._plugins import survey, try_libraries
from ._result import Arguments, Facts, Result, table

VERSIONS = ("arrayferry", "numpy", "array-api-compat", "pluggy", "gymnasium")


def doctor(args: Arguments) -> Result:
    """Show what is installed here, and what is broken.

    Each library is imported in a separate process. The exit status is 1 if something is broken. A library that is
    not installed is not broken.
    """
    facts = survey(args.timeout)
    libraries, plugins, problems = facts["libraries"], facts["plugins"], facts["problems"]
    try_libraries(libraries, facts, args.timeout)
    broken_lines = [*_broken("plugin", plugins), *_broken("library", libraries)]
    broken_lines += [f"  {text}" for text in problems]
    report = {
        "schema": 1,
        "ok": not broken_lines,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in VERSIONS},
        "settings": {name: text for name, text in os.environ.items() if name == PLUGINS_VARIABLE},
        "libraries": libraries,
        "plugins": plugins,
        "problems": problems,
    }
    lines = [
        ", ".join(f"{name} {each or 'not installed'}" for name, each in report["versions"].items()),
        f"Python {report['python']} ({report['implementation']}), {report['platform']}",
        *(f"{name}={value}" for name, value in report["settings"].items()),
        *("", "Libraries", *_libraries(libraries)),
        *("", "Plugins", *_plugins(plugins)),
        *("", *(["Broken", *broken_lines] if broken_lines else ["Nothing is broken."])),
    ]
    return report, lines, 1 if broken_lines else 0


def _version(distribution: str) -> str | None:
    return next((match.version for match in distributions(name=distribution)), None)


def _broken(kind: str, parts: list[Facts]) -> list[str]:
    """Return lines about the plugins or libraries that are broken. `kind` is "plugin" or "library"."""
    lines = []
    for part in parts:
        if part["problem"] and part["status"] != "not installed":
            lines.append(f"  {kind} {part['name']}: {part['problem']}")
            lines += [f"    {part['remedy']}"] if part["remedy"] else []
    return lines


def _libraries(libraries: list[Facts]) -> list[str]:
    words = {True: "yes", False: "no", None: ""}
    rows, sources = [("", "version", "status", "devices", "float64")], set()
    for library in libraries:
        version, status = library["version"] or "", library["status"]
        if library["kind"] == "backend":
            device_text = ", ".join(library["devices"])
            rows.append((library["name"], version, status, device_text, words[library["float64"]]))
        elif status == "usable":
            sources.add(f"{library['package'].partition('.')[0]} {version}".strip())
    if len(rows) == 1:
        return ["  none: no plugin with an array library is loaded"]
    lines = [*table(rows), *([f"read from: {', '.join(sorted(sources))}"] if sources else ())]
    return [f"  {line}" for line in lines]


def _plugins(plugins: list[Facts]) -> list[str]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for plugin in plugins:
        dist = f"{plugin['distribution'] or 'no distribution'} {plugin['version'] or ''}".strip()
        groups.setdefault((dist, plugin["origin"], plugin["status"]), []).append(plugin["name"])
    lines = []
    for (dist, origin, status), names in groups.items():
        has_several = origin == "entry point" and len(names) > 1
        kind_text = f"{len(names)} entry points" if has_several else origin
        lines.append(f"  {dist}, {kind_text}, {status}: {', '.join(names)}")
    return lines or ["  none"]
