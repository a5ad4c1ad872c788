"""`arrayferry check-env`: an environment is tried in several libraries, or vector environments are audited."""

from __future__ import annotations

import os
from typing import Any

from ._ask import ask
from ._errors import UsageError
from ._text import working


def check(name: str, timeout: float, steps: int | None = None) -> Any:
    """Try an environment in several libraries, or audit vector environments.

    Args:
        name: "module:Class" or "file.py:Class". For vector environments, an id of Gymnasium, or a function that makes them.
        timeout: seconds that it may take.
        steps: the steps of an audit of vector environments, None to try an environment.

    Returns:
        What `--json` prints.

    Raises:
        CommandError: there is no such environment, its module cannot be imported, or its code crashes, hangs or ends
            the process.
    """
    if steps is None and not name.partition(":")[2]:
        raise UsageError(
            f"{name!r:.80} does not name a class. Write module:Class, or file.py:Class; an id of Gymnasium with --vector"
        )
    try:
        folder = os.getcwd()
    except OSError as error:  # it was removed
        raise UsageError(f"there is no current folder ({error.strerror})") from error
    working(f"trying {name}")
    task, given = ("env.check", {}) if steps is None else ("env.check_vector", {"steps": steps})
    return ask(task, {"name": name, "folder": folder, **given}, {}, timeout)


def describe(report: dict[str, Any]) -> list[str]:
    """Return a report as lines of text."""
    count = len(report["problems"])
    found = "no problem was found" if report["ok"] else f"{count} problem{'s' * (count > 1)}"
    made = f" ({report['made']})" if report.get("made") else ""
    lines = [
        f"{report['env']}{made}: {found}",
        *(f"Warning: {text}" for text in report["warnings"]),
    ]
    for each in report["problems"]:
        method = f"{each['method']}(), " if "method" in each else ""
        seen = f" (in {', '.join(each['libraries'])})" if each.get("libraries") else ""
        seen += f" ({each['times']} times)" if each.get("times", 1) > 1 else ""
        lines += ["", f"  {method}{each['place']}", f"    {each['what']}{seen}."]
        if each["remedy"]:
            lines.append(f"    {each['remedy']}")
    return lines
