"""What a command returns, or raises if it has no result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from arrayferry import ArrayFerryError

Arguments = argparse.Namespace
"""The arguments of a command."""
Facts = dict[str, Any]
"""An entry about a plugin, library or route, or a report of all entries, in the form that `--json` prints."""
Result = tuple[Facts, list[str], int]
"""What `--json` prints, the lines of text that are printed without it, and the exit status."""


class CommandError(ArrayFerryError):
    """A library, a plugin or an environment cannot be used. `status` is the exit status of the command."""

    status = 1


class UsageError(CommandError):
    """A name is wrong or taken, or a folder exists already."""

    status = 2


def working(text: str) -> None:
    """Print what is being done, if the output is a terminal."""
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, in columns with two spaces in between."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
