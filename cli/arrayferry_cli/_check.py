"""`arrayferry check`: the contract kit on installed plugins."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._ask import NoAnswerError, ask
from ._doctor import survey
from ._screen import Screen

__all__ = ["WrongNameError", "check", "show"]

SCHEMA = 1
OUTCOMES = ("passed", "skipped", "failed", "crashed", "not run")
BAD = ("failed", "crashed")


class WrongNameError(Exception):
    """There is no such plugin, or nothing in it that can be checked."""


def check(package: str, timeout: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the contract kit on the backends and the direct converters of a plugin.

    Args:
        package: the name of a distribution, a module, an entry point or a backend.
        timeout: seconds that each test may take.
        tell: called with what is being done.

    Returns:
        The report, as `--json` prints it.

    Raises:
        WrongNameError: there is no such plugin.
        NoAnswerError: no plugin can be loaded.
    """
    tell("looking for plugins")
    found, _ = survey(timeout)
    plugins = _matching(package, found)
    broken = [plugin for plugin in plugins if plugin["status"] in ("broken", "left out")]
    checks = [
        {"backend": None, "plugin": p["name"], "tests": [], "error": _left_out(p), "made_by": {}}
        for p in broken
    ]
    good = [plugin for plugin in plugins if plugin["status"] == "loaded"]
    homes = {"arrayferry", *(plugin["distribution"] for plugin in good)}
    loaded = [p for p in found["plugins"] if p["status"] == "loaded" and p["distribution"] in homes]
    environment = {"ARRAYFERRY_PLUGINS": ",".join(p["name"] for p in loaded)}
    for name, only_direct in _backends(package, good, found):
        checks.append(_run(name, only_direct, environment, timeout, tell))
    if not checks:
        raise WrongNameError(
            f"{package} has no backend and no converter, which are what can be tested without its author. Sources are tested "
            "by arrayferry.testing.SourceContract, in the tests of the plugin: its author has to say how an object is made."
        )
    failed = any(
        each["error"] or any(t["outcome"] in BAD for t in each["tests"]) for each in checks
    )
    return {"schema": SCHEMA, "ok": not failed, "package": package, "checks": checks}


def _left_out(plugin: dict[str, Any]) -> str:
    text = (
        f"the plugin {plugin['name']} of {plugin['distribution'] or plugin['module']} is not used"
    )
    return f"{text}: {plugin['problem']}. {plugin['remedy'] or ''}".strip()


def _matching(package: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Find plugins by the name of a backend, of an entry point, of a distribution or of a module."""
    plugins = found["plugins"]
    owners = [b["plugin"] for b in found["backends"] if package in (b["name"], *b["names"])]
    ways: tuple[Callable[[dict[str, Any]], bool], ...] = (
        lambda plugin: plugin["name"] in owners,
        lambda plugin: package == plugin["name"] or package in plugin["backends"],
        lambda plugin: _normal(package) == _normal(plugin["distribution"] or ""),
        lambda plugin: (
            package
            in (
                (plugin["module"] or "").partition(":")[0],
                (plugin["module"] or "").partition(".")[0],
            )
        ),
    )
    for way in ways:
        matching = [plugin for plugin in plugins if way(plugin)]
        if matching:
            return matching
    names = {name for plugin in plugins for name in (plugin["name"], plugin["distribution"] or "")}
    nearest = difflib.get_close_matches(package, sorted(filter(None, names)), n=1)
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


def _backends(
    package: str, plugins: list[dict[str, Any]], found: dict[str, Any]
) -> list[tuple[str, bool]]:
    """Return the backends to test, and whether only direct converters from and to it are tested."""
    own = list(dict.fromkeys(name for plugin in plugins for name in plugin["backends"]))
    asked = [b["name"] for b in found["backends"] if package in (b["name"], *b["names"])]
    if asked:
        own = [name for name in own if name in asked]
    if own:
        installed = {b["name"] for b in found["backends"] if b["installed"]}
        usable = [name for name in own if name in installed]
        return [(name, False) for name in (usable if len(own) > 1 and usable else own)]
    pairs = [pair.split(" -> ") for plugin in plugins for pair in plugin["converters"]]
    return [(name, True) for name in dict.fromkeys(source for source, _ in pairs)]


def _run(
    name: str,
    only_direct: bool,
    environment: dict[str, str],
    timeout: float,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run the tests of a backend. A test that ends the process is a failure, and the others are run in a new one."""
    done: dict[str, dict[str, Any]] = {}
    purposes: dict[str, str] = {}
    result: dict[str, Any] = {"backend": name, "plugin": None, "error": None, "made_by": {}}
    tried = False
    while True:
        running = None
        tell(f"importing {name}")
        try:
            for answer in ask(
                "contract",
                timeout=timeout,
                environment=environment,
                name=name,
                done=list(done),
                tried=tried,
                only_direct=only_direct,
            ):
                if "error" in answer:
                    return {**result, "tests": [], "error": answer["error"]}
                purposes = answer.get("tests", purposes)
                tried = answer.get("tried", tried)
                result["made_by"] = answer.get("ways", result["made_by"])
                if "begin" in answer:
                    running = answer["begin"]
                    tell(f"{name}: {len(done) + 1} of {len(purposes)}, {running}")
                elif "test" in answer:
                    done[answer["test"]] = answer
                    running = None
        except NoAnswerError as error:
            if running is None:
                return {**result, "tests": [], "error": f"importing {name} failed: {error}"}
            done[running] = {"test": running, "outcome": "crashed", "message": str(error)}
            continue
        break
    not_run = {"outcome": "not run", "message": ""}
    tests = [
        {
            "name": test,
            "checks": purpose,
            "outcome": done.get(test, not_run)["outcome"],
            "message": done.get(test, not_run)["message"],
        }
        for test, purpose in purposes.items()
    ]
    return {**result, "tests": tests}


def show(report: dict[str, Any], screen: Screen) -> None:
    """Print a report for people."""
    for number, each in enumerate(report["checks"]):
        if number:
            screen.say()
        if each["error"]:
            screen.say(each["error"], style="bold red")
            continue
        outcomes = [test["outcome"] for test in each["tests"]]
        counts = [f"{outcomes.count(o)} {o}" for o in OUTCOMES if o in outcomes]
        bad: dict[str, list[dict[str, Any]]] = {}
        for test in each["tests"]:
            if test["outcome"] in BAD:
                bad.setdefault(test["message"], []).append(test)
        screen.say(f"{each['backend']}: {', '.join(counts)}", style="bold red" if bad else "green")
        for message, tests in bad.items():
            screen.say()
            for test in tests:
                screen.say(f"{test['name']}: {test['checks']}", style="bold", indent=2)
            screen.say(f"{message.rstrip('.')}.", indent=4)
        if "not run" in outcomes:
            screen.say()
            left = [test["name"] for test in each["tests"] if test["outcome"] == "not run"]
            among = ", test_to_numpy among them" if "test_to_numpy" in left else ""
            screen.say(
                f"{len(left)} tests were not run{among}: they need arrays that go in, are recognised, and come out. Fix "
                "that first.",
                style="yellow",
                indent=2,
            )
        skipped: dict[str, list[str]] = {}
        for test in each["tests"]:
            if test["outcome"] == "skipped":
                skipped.setdefault(test["message"], []).append(test["name"])
        for text, names in skipped.items():
            screen.say(f"{', '.join(names)}: {text}", style="yellow", indent=2)
        for way, dtypes in each["made_by"].items():
            only = f" for {', '.join(dtypes)}" if len(each["made_by"]) > 1 else ""
            screen.say(f"arrays were made by {way}{only}", style="dim", indent=2)
