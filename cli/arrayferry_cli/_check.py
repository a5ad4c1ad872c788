"""`arrayferry check`: pytest with the contract kit, on installed plugins."""

from __future__ import annotations

import difflib
import importlib.util
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

from arrayferry import registry

from ._ask import Announce, ask
from ._errors import CommandError, UsageError
from ._plugins import Facts, all_points, is_faulty, survey
from ._text import working

TESTS = """import pytest
from arrayferry import registry
from arrayferry.inspection import is_built_in
from arrayferry.testing import check_container, contract_for
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


def check(package: str, timeout: float, to_stderr: bool) -> tuple[Facts, int]:
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
        remedy = "In a checkout of arrayferry, run: pip install '.[cli]'"
        raise CommandError("the tests need pytest", remedy)
    found = survey(timeout)
    plugins = _matching(package, found)
    for plugin in filter(is_faulty, plugins):
        reason = f"the plugin {plugin['name']} is not used: {plugin['problem']}"
        raise CommandError(reason, plugin["remedy"])
    homes = {"arrayferry", *(plugin["distribution"] for plugin in plugins)}
    backends, registered = _backends(package, plugins, found)
    loaded = [each for each in found["plugins"] if each["status"] == "loaded"]
    names = {each["name"] for each in loaded if each["distribution"] in homes}
    environment = {"ARRAYFERRY_PLUGINS": ",".join(names.difference(registered))}
    checks = []
    for backend in backends:
        working(f"testing {backend}")
        given = {"backend": backend, "registered": registered}
        try:
            checked = ask(run_pytest, given, timeout, environment, 2 if to_stderr else None)
        except CommandError as error:
            checked = {"error": error.reason, "made_by": {}, "tests": [], "status": 1}
        checks.append({"backend": backend, **checked})
    status = next((each["status"] for each in checks if each["status"]), 0)
    report = {"schema": 1, "ok": not status, "package": package, "checks": checks}
    return {**report, "containers": _containers(plugins)}, status


def run_pytest(step: Announce, backend: str, registered: list[str]) -> Facts:
    """Run pytest on a backend, or on the direct converters and containers of some plugins: `ask` calls this.

    Args:
        step: called with what is done next.
        backend: the name of a backend.
        registered: the names of plugins without a backend.
    """
    import pytest

    warnings.resetwarnings()  # pytest shows them
    step(f"testing {backend}")
    for point in all_points():
        if point.name in registered:
            registry.register(point.load())
    ways: dict[str, list[str]] = {}
    tests: list[dict[str, str]] = []

    class Outcomes:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any) -> Any:
            report = yield
            ways.update({way: sorted(kinds) for way, kinds in item.cls.ways.items()})
            if report.when == "call" or not report.passed:
                checks = (item.obj.__doc__ or "").partition("\n")[0]
                outcome = {"outcome": report.outcome, "message": _message(report)}
                tests.append({"name": item.name, "checks": checks, **outcome})
            return report

    file = Path(f"test_{re.sub('[^A-Za-z0-9]', '_', backend)}.py")
    file.write_text(TESTS.format(backend=backend), encoding="utf-8")
    Path("pytest.ini").touch()  # no other settings count
    options = ["-c", "pytest.ini", "-p", "no:cacheprovider", "--tb=short", str(file)]
    options += ["-k", "test_direct_converters or test_types_of" if registered else "test_"]
    status = pytest.main(options, [Outcomes()])
    return {"error": None, "made_by": ways, "tests": tests, "status": status}


def _message(report: Any) -> str:
    if report.skipped:
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)  # not if a fixture is missing
    return "" if report.passed else str(getattr(crash, "message", report.longrepr))


def _matching(package: str, found: Facts) -> list[Facts]:
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
    reason = f"no plugin, backend or distribution with a plugin is named {package!r:.80}"
    raise UsageError(reason, f"{remedy}arrayferry doctor lists the plugins that are installed.")


def _names(plugin: Facts) -> set[str]:
    module = plugin["module"] or ""
    names = plugin["name"], plugin["distribution"] or "", *plugin["backends"]
    return set(map(_normal, (*names, module.partition(":")[0], module.partition(".")[0])))


def _normal(name: str) -> str:
    """Return a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _backends(package: str, plugins: list[Facts], found: Facts) -> tuple[list[str], list[str]]:
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
        reason = f"{package} has no backend, converter or container, and only these can be tested without its author"
        tests = (
            "Sources are tested by arrayferry.testing.SourceContract, in the tests of the plugin"
        )
        raise UsageError(reason, f"{tests}: its author has to say how an object is made.")
    starts = list(dict.fromkeys(pair.partition(" -> ")[0] for pair in pairs)) or own[:1]
    return (installed, []) if installed else (starts, [plugin["name"] for plugin in plugins])


def _containers(plugins: list[Facts]) -> list[str]:
    """Return the names of the containers of plugins, but for those that are built in."""
    others = [plugin for plugin in plugins if plugin["distribution"] != "arrayferry"]
    return [name for plugin in others for name in plugin["containers"]]


def describe(report: Facts) -> list[str]:
    """Return as lines of text what pytest has not printed."""
    lines = []
    for each in report["checks"]:
        lines += [f"Error: {each['error']}."] if each["error"] else []
        ways = " and ".join(each["made_by"])
        lines += [f"Arrays of {each['backend']} were made by {ways}."] if ways else []
    if report["containers"]:
        names = ", ".join(report["containers"])
        rest = "Test the rest by arrayferry.testing.check_container, with a value."
        lines.append(f"Of {names}, only `types` was looked at. {rest}")
    return lines
