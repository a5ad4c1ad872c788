"""Plain text for people."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def working(text: str) -> None:
    """Print what is being done, if the output is a terminal."""
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, in columns with two spaces in between."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
