"""`arrayferry check`: runs the contract kit on installed plugins, with pytest."""

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
from ._envs import suite_names
from ._plugins import all_points, require, survey
from ._result import Arguments, CommandError, Facts, Result, UsageError, working

TESTS = """import pytest
from arrayferry import registry
from arrayferry.extending import is_built_in
from arrayferry.testing import check_container, contract_for
backend = registry.backends().get({backend!r})
problem = backend and backend.problem()
if problem is not None:
    pytest.exit(str(problem))
TestBackend = backend and contract_for(backend)
class TestContainers:
    ways = {{}}
    def test_types_of_containers(self):
        '''`types` names types that exist. check_container() tests the rest, with a value.'''
        [check_container(x) for x in registry.catalog.containers if not is_built_in(x)]
"""
"""The code of a test module for a backend, and for the containers of its plugin.

While the tests run, the kit does not load plugins of other distributions. So only the tested containers are found.
"""


SUITE_TESTS = """from arrayferry_audit import SuiteContract
class TestSuite(SuiteContract):
    suite = {backend!r}
"""
"""The code of a test module for a suite of environments."""


def check(args: Arguments) -> Result:
    """Run the contract kit on an installed plugin, or on a suite.

    The command runs pytest, shows its output, and exits with its exit status.
    """
    if importlib.util.find_spec("pytest") is None:
        remedy = "In a checkout of arrayferry, run: pip install '.[cli]'"
        raise CommandError("the tests need pytest, which is not installed", remedy=remedy)
    facts = survey(args.timeout)
    if args.package in suite_names(args.timeout):
        return _check_suite(args)
    plugins = _matching(args.package, facts)
    dists = {"arrayferry", *(plugin["distribution"] for plugin in plugins)}
    other_plugins = [plugin for plugin in plugins if plugin["distribution"] != "arrayferry"]
    container_names = [name for plugin in other_plugins for name in plugin["containers"]]
    backends = _backends(args.package, plugins, facts)
    registered = [] if backends else [plugin["name"] for plugin in plugins]
    loaded = (each for each in facts["plugins"] if each["status"] == "loaded")
    chosen = {each["name"] for each in loaded if each["distribution"] in dists} - {*registered}
    descriptor, checks = 2 if args.json else 1, []
    for backend in backends or _ends(args.package, plugins, container_names):
        working(f"testing {backend}")
        try:
            arguments = {"backend": backend, "registered": registered}
            outcome = ask(run_pytest, args.timeout, chosen, descriptor, **arguments)
        except CommandError as error:
            outcome = {"error": error.reason, "made_by": {}, "tests": [], "status": 1}
        checks.append({"backend": backend, **outcome})
    status = max(entry["status"] for entry in checks)
    report = {"schema": 1, "ok": not status, "package": args.package, "checks": checks}
    report["containers"] = container_names
    return report, _describe(report), status


def _check_suite(args: Arguments) -> Result:
    """Run the tests of a suite.

    Raises:
        CommandError: all tests are skipped, because the package of the suite is not installed.
    """
    working(f"testing {args.package}")
    descriptor = 2 if args.json else 1
    arguments = {"backend": args.package, "registered": [], "tests": SUITE_TESTS}
    outcome = ask(run_pytest, args.timeout, None, descriptor, **arguments)
    if {test["outcome"] for test in outcome["tests"]} == {"skipped"}:
        raise CommandError(outcome["tests"][0]["message"])
    status = outcome["status"]
    checks = [{"backend": args.package, **outcome}]
    report = {"schema": 1, "ok": not status, "package": args.package, "checks": checks}
    return {**report, "containers": []}, [], status


def _matching(package: str, facts: Facts) -> list[Facts]:
    """Return the plugins that have a backend, an entry point, a distribution or a module named `package`.

    Raises:
        CommandError: there are no such plugins, or one of them cannot be used.
    """
    owners = {library["plugin"] for library in facts["libraries"] if package in library["names"]}
    wanted_name = _normal(package)
    plugins = [x for x in facts["plugins"] if x["name"] in owners or wanted_name in _names(x)]
    if not plugins:
        known_names = sorted({name for plugin in facts["plugins"] for name in _names(plugin)})
        nearest_names = difflib.get_close_matches(wanted_name, known_names, n=1)
        guess_text = f"Did you mean {nearest_names[0]!r}? " if nearest_names else ""
        for folder in (Path(package), Path(f"arrayferry-{package}")):
            if (folder / "pyproject.toml").is_file():
                guess_text = f"Install the folder that has this name: pip install -e {shlex.quote(str(folder))}. "
        reason = f"no plugin, backend or distribution with a plugin is named {package!r:.80}"
        remedy = f"{guess_text}arrayferry doctor lists the plugins that are installed."
        raise UsageError(reason, remedy=remedy)
    require(plugins)
    return plugins


def _names(plugin: Facts) -> set[str]:
    module = (plugin["module"] or "").partition(":")[0]
    names = plugin["name"], plugin["distribution"] or "", module, module.partition(".")[0]
    return set(map(_normal, names))


def _normal(name: str) -> str:
    """Return a name in the normal form in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _backends(package: str, plugins: list[Facts], facts: Facts) -> list[str]:
    """Return the names of the installed backends of plugins. If a backend is named `package`, return only its name.

    Raises:
        CommandError: the plugins have backends, but none is installed.
    """
    owners = [plugin["name"] for plugin in plugins]
    backends = [x for x in facts["libraries"] if x["kind"] == "backend" and x["plugin"] in owners]
    backends = [backend for backend in backends if package in backend["names"]] or backends
    installed_names = [backend["name"] for backend in backends if not backend["problem"]]
    if not installed_names:
        require(backends)
    return installed_names


def _ends(package: str, plugins: list[Facts], containers: list[str]) -> list[str]:
    """Return the names of the backends, or of the container, to test for plugins without a backend.

    These are the names of the source backends of the plugins' converters, or else the name of the first container.

    Raises:
        CommandError: there is nothing to test.
    """
    names = [name for plugin in plugins for name in plugin["converters"]]
    sources = list(dict.fromkeys(name.partition(" -> ")[0] for name in names)) or containers[:1]
    if not sources:
        reason = (
            f"{package} has no backend, converter or container, so arrayferry check cannot test it"
        )
        remedy = (
            "To test a source, subclass arrayferry.testing.SourceContract in the tests of the plugin. Its method "
            "make() makes an object of the library."
        )
        raise UsageError(reason, remedy=remedy)
    return sources


def run_pytest(step: Announce, backend: str, registered: list[str], tests: str = TESTS) -> Facts:
    """Run pytest on a backend, or on the direct converters and containers of some plugins.

    `ask` calls this function in a child process.

    Args:
        step: a function that is called before each step, with its description.
        backend: the name of a backend, or what `_ends` returned.
        registered: the names of the plugins to test that have no backend.
        tests: the source code of the test module.
    """
    import pytest

    warnings.resetwarnings()  # `answer` ignores warnings, but pytest must show them
    step(f"testing {backend}")
    for point in all_points():
        if point.name in registered:
            registry.register(point.load())
    dtypes_by_way: dict[str, list[str]] = {}
    test_outcomes: list[dict[str, str]] = []

    class Outcomes:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
            report = yield
            class_ways = getattr(item.cls, "ways", {})
            dtypes_by_way.update({way: sorted(dtypes) for way, dtypes in class_ways.items()})
            if report.when == "call" or not report.passed:
                summary = (item.obj.__doc__ or "").partition("\n")[0]
                message = call.excinfo.exconly(tryshort=True) if call.excinfo else ""
                entry = {"outcome": report.outcome, "message": message.removeprefix("Skipped: ")}
                test_outcomes.append({"name": item.name, "checks": summary, **entry})
            return report

    file = Path(f"test_{re.sub('[^A-Za-z0-9]', '_', backend)}.py")
    file.write_text(tests.format(backend=backend), encoding="utf-8")
    Path("pytest.ini").touch()  # else pytest would read settings from parent folders
    options = ["-c", "pytest.ini", "-p", "no:cacheprovider", "--tb=short", str(file)]
    options += ["-k", "test_direct_converters or test_types_of" if registered else "test_"]
    status = pytest.main(options, [Outcomes()])
    return {"error": None, "made_by": dtypes_by_way, "tests": test_outcomes, "status": status}


def _describe(report: Facts) -> list[str]:
    """Return lines of text about a report, without what pytest has printed already."""
    lines = []
    for entry in report["checks"]:
        lines += [f"Error: {entry['error']}."] if entry["error"] else []
        ways_text = " and ".join(entry["made_by"])
        lines += [f"Arrays of {entry['backend']} were made by {ways_text}."] if ways_text else []
    if report["containers"]:
        container_text = ", ".join(report["containers"])
        advice = "Test the rest by arrayferry.testing.check_container, with a value."
        lines.append(f"Only `types` of {container_text} was checked. {advice}")
    return lines
