"""`arrayferry check`: pytest with the contract kit, on installed plugins."""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._ask import describe_end, end_group, start
from ._entry_points import Plugin
from ._errors import CommandError, UsageError
from ._plugins import is_faulty, survey
from ._text import working

TESTS = """
import pytest
from arrayferry import registry
from arrayferry.inspection import is_built_in
from arrayferry.testing import check_container, contract_for
from importlib.metadata import entry_points

for point in entry_points(group="arrayferry"):
    if point.name in {registered!r}:
        registry.register(point.load())
backend = registry.backends().get({backend!r})
problem = backend and backend.problem()
if problem is not None:
    pytest.exit(str(problem))
TestBackend = backend and contract_for(backend)

class TestContainers:
    ways = {{}}
    def test_types_of_containers(self):
        '''`types` names types that are there. check_container() tests the rest, with a value.'''
        [check_container(x) for x in registry.catalog.containers if not is_built_in(x)]
"""
"""The tests of a backend, and of the containers of its plugin. The kit leaves out plugins of other distributions, unless they are registered at run time."""


def check(package: str, timeout: float, to_stderr: bool) -> tuple[dict[str, Any], int]:
    """Run the tests of the backends of a plugin, or of its converters and containers if it has no backend.

    Args:
        package: the name of a backend, an entry point, a distribution or a module.
        timeout: seconds that the tests of one backend may take.
        to_stderr: whether pytest writes to standard error instead of standard output.

    Returns:
        What `--json` prints; and the first exit status of pytest that is not 0, or 1 if it crashed or took too long.

    Raises:
        CommandError: there is no such plugin, it cannot be used, or pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise CommandError(
            "the tests need pytest", "In a checkout of arrayferry, run: pip install '.[cli]'"
        )
    found = survey(timeout)
    plugins = _matching(package, found)
    for plugin in filter(is_faulty, plugins):
        reason = f"the plugin {plugin['name']} is not used: {plugin['problem']}"
        raise CommandError(reason, plugin["remedy"])
    homes = {"arrayferry", *(plugin["distribution"] for plugin in plugins)}
    loaded = [each for each in found["plugins"] if each["status"] == "loaded"]
    names = [each["name"] for each in loaded if each["distribution"] in homes]
    backends, registered = _backends(package, plugins, found)
    environment = {"ARRAYFERRY_PLUGINS": ",".join(set(names) - set(registered))}
    checks = [_run(each, registered, environment, timeout, to_stderr) for each in backends]
    status = next((each["status"] for each in checks if each["status"]), 0)
    report = {"schema": 1, "ok": not status, "package": package, "checks": checks}
    return {**report, "containers": _containers(plugins)}, status


def _matching(package: str, found: dict[str, Any]) -> list[Plugin]:
    """Find plugins by the name of a backend, of an entry point, of a distribution or of a module."""
    plugins = found["plugins"]
    owners = {each["plugin"] for each in found["libraries"] if package in each["names"]}
    matching = [plugin for plugin in plugins if plugin["name"] in owners]
    matching = matching or [plugin for plugin in plugins if _normal(package) in _names(plugin)]
    if matching:
        return matching
    known = sorted({name for plugin in plugins for name in _names(plugin)})
    nearest = difflib.get_close_matches(_normal(package), known, n=1)
    remedy = f"Did you mean {nearest[0]!r}? " if nearest else ""
    for folder in (Path(package), Path(f"arrayferry-{package}")):
        if (folder / "pyproject.toml").is_file():
            remedy = f"Install the folder that has this name: pip install -e {shlex.quote(str(folder))}. "
    raise UsageError(
        f"no plugin, backend or distribution with a plugin is named {package!r:.80}",
        f"{remedy}arrayferry doctor lists the plugins that are installed.",
    )


def _names(plugin: Plugin) -> set[str]:
    module = plugin["module"] or ""
    names = plugin["name"], plugin["distribution"] or "", *plugin["backends"]
    return set(map(_normal, (*names, module.partition(":")[0], module.partition(".")[0])))


def _normal(name: str) -> str:
    """Return a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _backends(
    package: str, plugins: list[Plugin], found: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the backends to test, and the plugins of which only direct converters and containers are tested.

    Raises:
        CommandError: there is nothing to test, or none of it is installed.
    """
    named = {("backend", name) for plugin in plugins for name in plugin["backends"]}
    backends = [each for each in found["libraries"] if (each["kind"], each["name"]) in named]
    backends = [each for each in backends if package in each["names"]] or backends
    installed = [each["name"] for each in backends if each["status"] != "not installed"]
    if backends and not installed:
        raise CommandError(backends[0]["problem"], backends[0]["remedy"])
    pairs = [pair for plugin in plugins for pair in plugin["converters"]]
    own = _containers(plugins)
    if not (backends or pairs or own):
        raise UsageError(
            f"{package} has no backend, converter or container, and only these can be tested without its author",
            "Sources are tested by arrayferry.testing.SourceContract, in the tests of the plugin: its author has to say "
            "how an object is made.",
        )
    starts = list(dict.fromkeys(pair.partition(" -> ")[0] for pair in pairs)) or own[:1]
    return (installed, []) if installed else (starts, [plugin["name"] for plugin in plugins])


def _containers(plugins: list[Plugin]) -> list[str]:
    """Return the names of the containers of plugins, but for those that are built in."""
    return [
        x for each in plugins if each["distribution"] != "arrayferry" for x in each["containers"]
    ]


def _run(
    backend: str,
    registered: list[str],
    environment: dict[str, str],
    timeout: float,
    to_stderr: bool,
) -> dict[str, Any]:
    """Run pytest on a backend, or on the direct converters and containers of some plugins, and return the outcomes."""
    working(f"testing {backend}")
    checked: dict[str, Any] = {"backend": backend, "error": None, "made_by": {}, "tests": []}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        tests = folder / f"test_{re.sub('[^A-Za-z0-9]', '_', backend)}.py"
        outcomes = folder / "outcomes"
        tests.write_text(TESTS.format(backend=backend, registered=registered), encoding="utf-8")
        (folder / "pytest.ini").touch()  # no other settings count
        options = ["-c", "pytest.ini", "-p", "no:cacheprovider", "--tb=short"]
        options += ["-k", "test_direct_converters or test_types_of" if registered else "test_"]
        options += ["-p", "arrayferry_cli._pytest_plugin", f"--outcomes={outcomes}", tests.name]
        output = 2 if to_stderr else None
        status = 1
        process = start(["-m", "pytest", *options], folder, environment, output)
        try:
            status = process.wait(timeout)
            if status < 0:
                checked["error"] = f"testing {backend} failed: {describe_end(status)}"
        except subprocess.TimeoutExpired:
            checked["error"] = f"testing {backend} took longer than {timeout:g} seconds"
            process.send_signal(signal.SIGABRT)  # pytest prints where it is
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            end_group(process)
        if outcomes.exists():
            checked |= json.loads(outcomes.read_text("utf-8"))
    return {**checked, "status": 1 if checked["error"] else status}


def describe(report: dict[str, Any]) -> list[str]:
    """Return as lines of text what pytest has not printed."""
    lines = []
    for each in report["checks"]:
        lines += [f"Error: {each['error']}."] if each["error"] else []
        ways = " and ".join(each["made_by"])
        lines += [f"Arrays of {each['backend']} were made by {ways}."] if ways else []
    if report["containers"]:
        names = ", ".join(report["containers"])
        lines.append(
            f"Of {names}, only `types` was looked at. Test the rest by arrayferry.testing.check_container, with a value."
        )
    return lines
