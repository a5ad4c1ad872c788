"""`arrayferry envs`: lists the suites of environments, or the ids of the environments of one suite."""

from __future__ import annotations

from ._ask import Announce, ask
from ._result import Arguments, CommandError, Facts, Result, table, working


def envs(args: Arguments) -> Result:
    """List the suites of environments that plugins provide, or the ids of one suite.

    The ids are for `arrayferry_envs.make_vec` and `make`. If a suite is named, it is imported in a child process.
    """
    working(f"listing {args.suite or 'suites'}")
    facts = ask(list_envs, args.timeout, None, suite=args.suite)
    report = {"schema": 1, "ok": True, **facts}
    if args.suite is not None:
        return report, facts["ids"], 0
    rows = [
        (
            suite["name"],
            suite["version"] or "not installed",
            "" if suite["version"] else suite["install"],
        )
        for suite in facts["suites"]
    ]
    return report, table(rows), 0


def suite_names(timeout: float) -> list[str]:
    """Return the names of all suites. Return an empty list if `arrayferry_envs` cannot be imported."""
    try:
        return [suite["name"] for suite in ask(list_envs, timeout, None, suite=None)["suites"]]
    except CommandError:
        return []


def list_envs(step: Announce, suite: str | None) -> Facts:
    """Return an entry for each suite, or the ids of one suite. `ask` calls this function in a child process.

    Args:
        step: a function that is called before each step, with its description.
        suite: the name of a suite, or None for all.
    """
    step("listing suites")
    from arrayferry_envs import suites

    if suite is not None:
        step(f"importing the suite {suite}")
        return {"suite": suite, "ids": suites(suite)}
    return {
        "suites": [
            {
                "name": name,
                "package": suite.package,
                "version": suite.version or ("installed" if suite.installed else None),
                "install": suite.install_line,
                "gives": suite.gives,
            }
            for name, suite in suites().items()
        ]
    }
