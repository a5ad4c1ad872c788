"""`arrayferry check-env`: an environment is tried in several libraries."""

from __future__ import annotations

import os

from ._ask import ask
from ._errors import NoAnswerError, WrongNameError
from ._reports import EnvReport, Unanswerable
from ._screen import Screen


def check(name: str, timeout: float) -> EnvReport:
    """Try an environment in several libraries.

    Args:
        name: "module:Class" or "file.py:Class".
        timeout: how many seconds that may take.

    Raises:
        WrongNameError: there is no such environment, or its module cannot be imported.
        NoAnswerError: its code crashes, hangs, or ends the process.
    """
    if not name.partition(":")[2]:
        raise WrongNameError(
            f"{name!r:.80} does not name a class. Write module:Class, or file.py:Class"
        )
    try:
        folder = os.getcwd()
    except OSError as error:  # it was removed
        raise WrongNameError(f"there is no current folder ({error.strerror})") from error
    try:
        (report,) = ask("env", timeout=timeout, name=name, folder=folder)
    except NoAnswerError as error:
        raise NoAnswerError(f"Trying {name} failed: {error}") from error
    if isinstance(report, Unanswerable):
        raise WrongNameError(report.error)
    checked: EnvReport = report
    return checked


def show(report: EnvReport, screen: Screen) -> None:
    """Print a report for people."""
    count = len(report.problems)
    if report.ok:
        screen.say(f"{report.env}: nothing is wrong", style="green")
    else:
        screen.say(f"{report.env}: {count} problem{'s' * (count > 1)}", style="bold red")
    for text in report.warnings:
        screen.say(f"Warning: {text}", style="yellow")
    for each in report.problems:
        screen.say()
        screen.say(f"{each.method}(), {each.place}", style="bold", indent=2)
        seen = f" (in {', '.join(each.libraries)})" if each.libraries else ""
        screen.say(f"{each.what}{seen}.", indent=4)
        if each.remedy:
            screen.say(each.remedy, indent=4)
