"""A plugin for pytest where `arrayferry check` runs it: it writes to a file how arrays were made, and the outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_reports: list[Any] = []


def pytest_addoption(parser: Any) -> None:
    """Add the option for the file."""
    parser.addoption("--outcomes", type=Path, required=True)


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the outcome of a test, and of its fixtures if they fail or skip it."""
    if report.when == "call" or not report.passed:
        _reports.append(report)


def pytest_sessionfinish(session: Any) -> None:
    """Write the outcomes and how arrays were made."""
    items = {item.nodeid: item for item in session.items}
    ways = {way: sorted(found) for each in items.values() for way, found in each.cls.ways.items()}
    tests = []
    for report in _reports:
        checks = (items[report.nodeid].obj.__doc__ or "").partition("\n")[0]
        outcome = {"checks": checks, "outcome": report.outcome, "message": _message(report)}
        tests.append({"name": report.nodeid.rpartition("::")[2], **outcome})
    text = json.dumps({"made_by": ways, "tests": tests})
    session.config.getoption("outcomes").write_text(text, encoding="utf-8")


def _message(report: Any) -> str:
    if report.skipped:
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)  # not if a fixture is missing
    return "" if report.passed else str(getattr(crash, "message", report.longrepr))
