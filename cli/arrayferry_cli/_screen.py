"""What the commands print: for a terminal of any width, and plain where the output goes elsewhere."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

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


class OutputError(Exception):
    """The output cannot be written. The text says why."""


@contextmanager
def writing() -> Iterator[None]:
    """Make another error of one that standard output raises, unless its reader has gone.

    Raises:
        OutputError: it cannot be written to.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


class Screen:
    """Standard output, and progress on standard error."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # not one that a test or a notebook put there
                stream.reconfigure(errors="backslashreplace")
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") in ("dumb", "unknown")
        terminal = sys.stdout.isatty()
        self.console = Console(
            highlight=False,
            markup=False,
            emoji=False,
            color_system="auto"
            if not plain and (terminal or os.environ.get("FORCE_COLOR"))
            else None,
            width=shutil.get_terminal_size().columns if terminal else UNLIMITED,
        )
        self._progress = Console(
            stderr=True, highlight=False, markup=False, color_system=None if plain else "auto"
        )

    @property
    def _unlimited(self) -> ConsoleOptions:
        """The options of a console on which every table fits."""
        return self.console.options.update(width=UNLIMITED)

    def say(self, text: str = "", style: str = "", indent: int = 0, hang: int = 2) -> None:
        """Print a text, wrapped between words if it is for a terminal.

        Args:
            text: the text.
            style: of rich.
            indent: spaces before each line.
            hang: further spaces before the lines that follow where a line is too long.
        """
        for line in text.split("\n"):
            self._print(Text(line, style=style), indent, hang)

    def _print(self, text: Text, indent: int, hang: int = 2) -> None:
        if self.console.width < 4 * (indent + hang):
            indent = hang = 0
        lines = text.wrap(self.console, max(self.console.width - indent - hang, 1)) or [text]
        for number, line in enumerate(lines):
            line.rstrip()
            before = " " * (indent + (hang if number else 0)) if line else ""
            with writing():
                self.console.print(Text(before) + line, soft_wrap=True)

    def fail(self, text: str) -> None:
        """Print why nothing else is printed, on standard error."""
        width = self._progress.width if sys.stderr.isatty() else UNLIMITED
        print(
            "\n".join(textwrap.wrap(f"Error: {text}", width, subsequent_indent="  ")),
            file=sys.stderr,
        )

    def heading(self, text: str) -> None:
        """Print a heading after an empty line."""
        self.say()
        self.say(text, style="bold")

    def fits(self, columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> bool:
        """Tell whether rows fit into the width as a table."""
        needed = Measurement.get(self.console, self._unlimited, _table(columns, rows, indent))
        return needed.maximum <= self.console.width

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Print rows in columns. Where a terminal is too narrow for them, each row becomes a few lines."""
        if not self.fits(columns, rows, indent):
            self._records(columns, rows, indent)
            return
        table = _table(columns, rows, indent)
        for segments in self.console.render_lines(table, self._unlimited, pad=False):
            line = Text.assemble(*((part.text, part.style or "") for part in segments))
            line.rstrip()
            with writing():
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
        """Print a report as JSON."""
        with writing():
            sys.stdout.write(json.dumps(asdict(value), indent=2) + "\n")

    @contextmanager
    def working(self, text: str) -> Iterator[Any]:
        """Show that work is going on, if somebody can see it. Yield a function that changes the text."""
        if not sys.stderr.isatty() or self._progress.is_dumb_terminal:
            yield lambda text: None
            return

        def line(text: str) -> Text:
            return Text(text, no_wrap=True, overflow="ellipsis")

        with self._progress.status(line(text), spinner="line") as status:
            yield lambda text: status.update(line(text))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> Padding:
    """Return a table without lines, two spaces between its columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(Text(column), no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return Padding(table, (0, 0, 0, indent), expand=False)
