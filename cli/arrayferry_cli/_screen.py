"""What the commands print: for a terminal of any width, and plain where the output goes elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Screen"]

UNLIMITED = 100_000

STYLES = {
    "usable": "green",
    "loaded": "green",
    "passed": "green",
    "shared": "green",
    "not usable": "bold red",
    "broken": "bold red",
    "left out": "bold red",
    "failed": "bold red",
    "skipped": "yellow",
    "not installed": "dim",
    "not loaded": "dim",
}
"""How words are shown where they are the whole text of a cell."""


class Screen:
    """Standard output, and progress on standard error."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in ("dumb", "unknown")
        terminal = sys.stdout.isatty()
        self.console = Console(
            highlight=False,
            markup=False,
            emoji=False,
            color_system=None if plain or not terminal else "auto",
            width=None if terminal else UNLIMITED,
        )
        self._progress = Console(
            stderr=True, highlight=False, markup=False, color_system=None if plain else "auto"
        )

    def say(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Print a text, wrapped between words if it is for a terminal."""
        for line in text.split("\n"):
            self._print(Text(line, style=style), indent)

    def _print(self, text: Text, indent: int) -> None:
        width = max(self.console.width - indent, 1)
        if self.console.width < 4 * indent:
            width, indent = self.console.width, 0
        for line in text.wrap(self.console, width) if text else [text]:
            line.rstrip()
            self.console.print(Text(" " * indent if line else "") + line, soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print a heading after an empty line."""
        self.say()
        self.say(text, style="bold")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Print rows in columns. Where a terminal is too narrow for them, each row becomes a few lines."""
        table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
        for column in columns:
            table.add_column(column, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        widths = [max(len(c), *(len(row[n]) for row in rows)) for n, c in enumerate(columns)]
        if sum(widths) + 2 * len(widths) + indent > self.console.width:
            self._records(columns, rows, indent)
            return
        for cells, header in ((columns, True), *((row, False) for row in rows)):
            line = Text(" " * indent)
            for width, cell in zip(widths, cells, strict=True):
                style = "dim" if header else STYLES.get(cell, "")
                line.append(cell, style=style)
                line.append(" " * (width - len(cell) + 2))
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def _records(self, columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> None:
        for row in rows:
            self.say(row[0], style="bold", indent=indent)
            for column, cell in zip(columns[1:], row[1:], strict=True):
                if cell:
                    text = Text(f"{column}: " if column else "", style="dim")
                    text.append(cell, style=STYLES.get(cell, "not dim"))
                    self._print(text, indent + 2)

    def data(self, value: Any) -> None:
        """Print JSON."""
        sys.stdout.write(json.dumps(value, indent=2) + "\n")

    @contextmanager
    def working(self, text: str) -> Iterator[Any]:
        """Show that work is going on, if somebody can see it. Yield a function that changes the text."""
        if not self._progress.is_terminal or self._progress.is_dumb_terminal:
            yield lambda text: None
            return
        with self._progress.status(Text(text)) as status:
            yield lambda text: status.update(Text(text))
