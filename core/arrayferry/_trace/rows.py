"""What a trace reports: findings, and rows. A row is for one line of code, pair of libraries and kind of crossing."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from arrayferry._route.route import How
from arrayferry._utilities.text import printable

MAX_REASONS = 16
"""The maximum number of reasons of a row. All further reasons are counted together."""
HEADS = ("time", "calls", "arrays", "size", "how", "from -> to", "place")
"""The heads of the columns of a table."""


@dataclasses.dataclass
class TraceRow:
    """Similar crossings in one line of code, from one library and device to another.

    Attributes:
        file: the file of the line, or "" if it is not known.
        line: the line number.
        function: the function that contains the line.
        source: the library of the arrays, or "python" for numbers that become arrays.
        target: the library of the results, or "python" for actions that an adapter reads as numbers.
        source_device: the device of the arrays, or "" if it is not known.
        target_device: the device of the results.
        how: what happened to the arrays: "shared" if the results use their memory, "copied" within one memory,
            "transferred" to another memory, or "computed" or read from a file.
        calls: the number of conversions with such arrays.
        arrays: the number of arrays that crossed.
        bytes: the size of the results in bytes.
        seconds: the time that the conversions took. The time for a tree is divided among its arrays in proportion to
            their sizes. Work that a GPU has not finished when a conversion returns is not included.
        why: for each reason why arrays were not shared or not converted by the planned route, the number of calls.
    """

    file: str
    line: int
    function: str
    source: str
    target: str
    source_device: str
    target_device: str
    how: How | Literal[""]
    calls: int = 0
    arrays: int = 0
    bytes: int = 0
    seconds: float = 0.0
    why: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def place(self) -> str:
        """The line in short form: `train.py:12 in step`."""
        return short_place(self.file, self.line, self.function)

    def count_reasons(self, reasons: Iterable[str]) -> None:
        """Add one call to the count of each of these reasons."""
        for reason in sorted(reasons):
            is_listed = reason in self.why or len(self.why) < MAX_REASONS
            name = reason if is_listed else "other reasons"
            self.why[name] = self.why.get(name, 0) + 1


@dataclasses.dataclass(frozen=True)
class TraceFinding:
    """Something in a trace that costs more than necessary.

    Attributes:
        kind: "round trip" or "hot loop".
        file: the file of the line to change.
        line: the line number.
        function: the function that contains the line.
        times: how often this happened.
        reason: what happened at the line.
        remedy: how to avoid it.
    """

    kind: Literal["round trip", "hot loop"]
    file: str
    line: int
    function: str
    times: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        place = short_place(self.file, self.line, self.function)
        return f"{self.kind} at {place}: {self.reason}. {self.remedy}"


def short_place(file: str, line: int, function: str) -> str:
    """Return a line of code in short form: the file without its folders, or the number of a notebook cell."""
    if not file:
        return printable(function) or "(unknown)"
    name = os.path.basename(file)
    with suppress(Exception):  # the file is not a notebook cell, or IPython is not loaded
        shell: Any = sys.modules["IPython"].get_ipython()
        name = " ".join(shell.compile.format_code_name(file))
    where = "" if function in ("", "<module>") else f" in {function}"
    return printable(f"{name}:{line}{where}")


def on_device(library: str, device: str) -> str:
    """Return the name of a library, with the device if it is not the CPU."""
    return library if device in ("cpu", "") else f"{library} ({device})"


def table_lines(rows: Sequence[TraceRow]) -> list[str]:
    """Return the rows as lines of a table. The reasons of a row are below the row."""
    lines: list[tuple[str, ...]] = [HEADS]
    for row in rows:
        sides = (row.source, row.source_device), (row.target, row.target_device)
        way = " -> ".join(on_device(*side) for side in sides)
        counts = time_text(row.seconds), f"{row.calls}", f"{row.arrays}", size_text(row.bytes)
        lines.append((*counts, row.how, way, row.place))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for *cells, place in lines:
        numbers = [cell.rjust(width) for cell, width in zip(cells[:4], widths[:4], strict=True)]
        words = [cell.ljust(width) for cell, width in zip(cells[4:], widths[4:6], strict=True)]
        text.append(" ".join([*numbers, *words, place]))
    for number, row in enumerate(rows, 1):
        for reason, count in row.why.items():
            text[number] += f"\n{' ' * widths[0]} {reason}, {counted(count, 'time')}"
    return text


def counted(count: int, noun: str) -> str:
    """Return a count with a noun, in the plural unless the count is 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


def time_text(seconds: float) -> str:
    """Write a time with three digits."""
    return _scaled(seconds * 1e6, "us", "ms", "s")


def size_text(size: float) -> str:
    """Write a size in bytes with three digits."""
    return f"{size} B" if size < 1000 else _scaled(size / 1000, "kB", "MB", "GB", "TB")


def _scaled(number: float, *units: str) -> str:
    """Write a number with three digits, in the first unit in which it is less than 1000."""
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f} {units[power]}"
