"""The types of what a command returns, and the errors that it raises."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from arrayferry import ArrayFerryError

Arguments = argparse.Namespace
"""The arguments of a command."""
Facts = dict[str, Any]
"""JSON that `--json` prints: an entry about a plugin, a library or a route, or a report that contains entries."""
Result = tuple[Facts, list[str], int]
"""What `--json` prints, the lines of text that are printed without it, and the exit status."""


class CommandError(ArrayFerryError):
    """A library, a plugin or an environment cannot be used. `status` is the exit status of the command."""

    status = 1


class UsageError(CommandError):
    """An argument of the command is wrong: for example, a name is invalid or taken, or a folder exists already."""

    status = 2


def working(text: str) -> None:
    """Print what the command is doing, if the standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, in columns with two spaces in between."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
