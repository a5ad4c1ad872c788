"""`arrayferry check`: the contract kit on installed plugins."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._errors import WrongNameError
from ._recovery import Question, attempt, survey
from ._reports import (
    Begun,
    CheckedBackend,
    CheckReport,
    Essential,
    MadeBy,
    Plugin,
    Survey,
    TestReport,
    Tests,
    Unanswerable,
)
from ._screen import Screen

SCHEMA = 1
OUTCOMES = ("passed", "skipped", "failed", "crashed", "not run")
BAD = ("failed", "crashed")


def check(package: str, timeout: float, tell: Callable[[str], None]) -> CheckReport:
    """Run the contract kit on the backends and the direct converters of a plugin.

    Args:
        package: the name of a distribution, a module, an entry point or a backend.
        timeout: seconds that each test may take.
        tell: called with what is being done.

    Raises:
        WrongNameError: there is no such plugin.
        NoAnswerError: no plugin can be loaded.
    """
    tell("looking for plugins")
    overview = survey(timeout).survey
    plugins = _matching(package, overview)
    checks = [
        CheckedBackend(None, plugin.name, error=_left_out(plugin))
        for plugin in plugins
        if plugin.faulty
    ]
    good = [plugin for plugin in plugins if plugin.status == "loaded"]
    homes = {"arrayferry", *(plugin.distribution for plugin in good)}
    loaded = [p for p in overview.plugins if p.status == "loaded" and p.distribution in homes]
    environment = {"ARRAYFERRY_PLUGINS": ",".join(plugin.name for plugin in loaded)}
    for name, only_direct in _backends(package, good, overview):
        checks.append(_Run(name, only_direct, environment, timeout, tell).checked())
    if not checks:
        raise WrongNameError(
            f"{package} has no backend and no converter, and only these can be tested without its author. Sources are tested "
            "by arrayferry.testing.SourceContract, in the tests of the plugin: its author has to say how an object is made."
        )
    failed = any(each.error or any(t.outcome in BAD for t in each.tests) for each in checks)
    return CheckReport(SCHEMA, not failed, package, checks)


def _left_out(plugin: Plugin) -> str:
    text = f"the plugin {plugin.name} of {plugin.distribution or plugin.module} is not used"
    return f"{text}: {plugin.problem}. {plugin.remedy or ''}".strip()


def _matching(package: str, overview: Survey) -> list[Plugin]:
    """Find plugins by the name of a backend, of an entry point, of a distribution or of a module."""
    plugins = overview.plugins
    owners = [part.plugin for part in overview.backends if package in (part.name, *part.names)]
    ways: tuple[Callable[[Plugin], bool], ...] = (
        lambda plugin: plugin.name in owners,
        lambda plugin: package == plugin.name or package in plugin.backends,
        lambda plugin: _normal(package) == _normal(plugin.distribution or ""),
        lambda plugin: package in _modules(plugin),
    )
    for way in ways:
        matching = [plugin for plugin in plugins if way(plugin)]
        if matching:
            return matching
    names = {name for plugin in plugins for name in (plugin.name, plugin.distribution) if name}
    nearest = difflib.get_close_matches(package, sorted(names), n=1)
    guess = f" Did you mean {nearest[0]!r}?" if nearest else ""
    for folder in (Path(package), Path(f"arrayferry-{package}")):
        if (folder / "pyproject.toml").is_file():
            guess = f" Install the folder that has this name: pip install -e {shlex.quote(str(folder))}."
    raise WrongNameError(
        f"no plugin, backend or distribution with a plugin is named {package!r:.80}.{guess} "
        "arrayferry doctor lists the plugins that are installed."
    )


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _modules(plugin: Plugin) -> tuple[str, str]:
    """Return the module of a plugin, and the package that it is in."""
    module = plugin.module or ""
    return module.partition(":")[0], module.partition(".")[0]


def _backends(package: str, plugins: list[Plugin], overview: Survey) -> list[tuple[str, bool]]:
    """Return the backends to test, and whether only direct converters from and to them are tested."""
    own = list(dict.fromkeys(name for plugin in plugins for name in plugin.backends))
    asked = [part.name for part in overview.backends if package in (part.name, *part.names)]
    if asked:
        own = [name for name in own if name in asked]
    if own:
        installed = {part.name for part in overview.backends if part.installed}
        usable = [name for name in own if name in installed]
        return [(name, False) for name in (usable if len(own) > 1 and usable else own)]
    pairs = [pair.split(" -> ") for plugin in plugins for pair in plugin.converters]
    return [(name, True) for name in dict.fromkeys(source for source, _ in pairs)]


class _Run:
    """The tests of a backend. A test that ends its process has crashed, and the others run in a new one.

    Args:
        name: the name of the backend.
        only_direct: whether only direct converters are tested.
        environment: the variables of the processes.
        timeout: seconds that each test may take.
        tell: called with what is being done.
    """

    def __init__(
        self,
        name: str,
        only_direct: bool,
        environment: dict[str, str],
        timeout: float,
        tell: Callable[[str], None],
    ) -> None:
        self._name = name
        self._only_direct = only_direct
        self._environment = environment
        self._timeout = timeout
        self._tell = tell
        self._purposes: dict[str, str] = {}
        self._done: dict[str, TestReport] = {}
        self._running: str | None = None
        self._tried = False
        self._error: str | None = None
        self._made_by: dict[str, list[str]] = {}

    def checked(self) -> CheckedBackend:
        """Run all tests."""
        while True:
            self._running = None
            self._tell(f"importing {self._name}")
            failure = attempt(self._question(), self._timeout, self._receive).failure
            if failure is None or self._error:
                break
            if self._running is None:
                self._error = f"importing {self._name} failed: {failure}"
                break
            checks = self._purposes.get(self._running, "")
            self._done[self._running] = TestReport(self._running, checks, "crashed", failure)
        if self._error:
            return CheckedBackend(self._name, None, error=self._error, made_by=self._made_by)
        tests = [
            self._done.get(name) or TestReport(name, purpose, "not run", "")
            for name, purpose in self._purposes.items()
        ]
        return CheckedBackend(self._name, None, tests, made_by=self._made_by)

    def _question(self) -> Question:
        arguments = {
            "name": self._name,
            "done": list(self._done),
            "tried": self._tried,
            "only_direct": self._only_direct,
        }
        return Question("contract", arguments, self._environment)

    def _receive(self, message: Any) -> None:
        match message:
            case Unanswerable():
                self._error = message.error
            case Tests():
                self._purposes = message.purposes
            case Essential():
                self._tried = True
            case MadeBy():
                self._made_by = message.ways
            case Begun():
                self._running = message.test
                number = f"{len(self._done) + 1} of {len(self._purposes)}"
                self._tell(f"{self._name}: {number}, {self._running}")
            case TestReport():
                self._done[message.name] = message
                self._running = None


def show(report: CheckReport, screen: Screen) -> None:
    """Print a report for people."""
    for number, each in enumerate(report.checks):
        if number:
            screen.say()
        if each.error:
            screen.say(each.error, style="bold red")
        else:
            _show_tests(each, screen)


def _show_tests(checked: CheckedBackend, screen: Screen) -> None:
    outcomes = [test.outcome for test in checked.tests]
    counts = [f"{outcomes.count(o)} {o}" for o in OUTCOMES if o in outcomes]
    bad: dict[str, list[TestReport]] = {}
    for test in checked.tests:
        if test.outcome in BAD:
            bad.setdefault(test.message, []).append(test)
    screen.say(f"{checked.backend}: {', '.join(counts)}", style="bold red" if bad else "green")
    for message, tests in bad.items():
        screen.say()
        screen.say(f"{message.rstrip('.')}.", style="bold", indent=2)
        for test in tests:
            screen.say(f"{test.name}: {test.checks}", indent=4)
    left = [test.name for test in checked.tests if test.outcome == "not run"]
    if left:
        screen.say()
        among = ", test_to_numpy among them" if "test_to_numpy" in left else ""
        screen.say(
            f"{len(left)} tests were not run{among}: they need arrays that can be made from NumPy's, are recognised, and can be "
            "converted back. Fix that first.",
            style="yellow",
            indent=2,
        )
    skipped: dict[str, list[str]] = {}
    for test in checked.tests:
        if test.outcome == "skipped" or (test.outcome == "passed" and test.message):
            skipped.setdefault(test.message, []).append(test.name)
    for text, names in skipped.items():
        screen.say(f"{', '.join(names)}: {text}", style="yellow", indent=2)
    for way, dtypes in checked.made_by.items():
        only = f" for {', '.join(dtypes)}" if len(checked.made_by) > 1 else ""
        screen.say(f"arrays were made by {way}{only}", style="dim", indent=2)
