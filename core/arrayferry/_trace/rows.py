"""What a trace reports: findings and rows. A row counts the crossings in one line of code between two libraries."""

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
"""The maximum number of different reasons of a row. All further reasons are counted together, as "other reasons"."""
HEADS = ("time", "calls", "arrays", "size", "how", "from -> to", "place")
"""The headings of the columns of a table."""


@dataclasses.dataclass
class TraceRow:
    """The crossings in one line of code that have the same libraries, devices and `how`.

    Attributes:
        file: the file of the line, or "" if it is not known.
        line: the line number.
        function: the function that contains the line.
        source: the library of the arrays, or "python" for numbers that become arrays.
        target: the library of the results, or "python" for numbers that are read from arrays, such as actions.
        source_device: the device of the arrays, or "" if it is not known.
        target_device: the device of the results.
        how: "shared" if the results use the memory of the arrays, "copied" if the results are copies in the same memory
            (that of the host, or of one GPU), "transferred" if the results are in another memory, "computed" if the
            arrays were computed or read from a file.
        calls: the number of conversions with crossings of this row.
        arrays: the number of arrays that crossed.
        bytes: the size of the results in bytes.
        seconds: the time that the conversions took, in seconds. The time for a tree is divided among its arrays in
            proportion to their sizes. Work that a GPU has not finished when a conversion returns is not included.
        why: a dict with the number of calls for each reason why arrays were not shared, or not converted by the planned
            route.
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
        """A short text for the line, such as `train.py:12 in step`."""
        return short_place(self.file, self.line, self.function)

    def count_reasons(self, reasons: Iterable[str]) -> None:
        """Add one call to the count of each of these reasons."""
        for reason in sorted(reasons):
            is_listed = reason in self.why or len(self.why) < MAX_REASONS
            counted_reason = reason if is_listed else "other reasons"
            self.why[counted_reason] = self.why.get(counted_reason, 0) + 1


@dataclasses.dataclass(frozen=True)
class TraceFinding:
    """A round trip or a hot loop that a trace found, which takes more time than necessary.

    Attributes:
        kind: "round trip" or "hot loop".
        file: the file of the line to change.
        line: the line number.
        function: the function that contains the line.
        times: how often the array came back, or was copied.
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
    """Return a short text for a line of code. It has the file without its folders, or the number of a notebook cell."""
    if not file:
        return printable(function) or "(unknown)"
    file_name = os.path.basename(file)
    with suppress(Exception):  # fails if the file is no notebook cell, or IPython is not loaded
        shell: Any = sys.modules["IPython"].get_ipython()
        file_name = " ".join(shell.compile.format_code_name(file))
    function_text = "" if function in ("", "<module>") else f" in {function}"
    return printable(f"{file_name}:{line}{function_text}")


def on_device(library: str, device: str) -> str:
    """Return the name of a library, and the name of the device in brackets if it is not the CPU."""
    return library if device in ("cpu", "") else f"{library} ({device})"


def table_lines(rows: Sequence[TraceRow]) -> list[str]:
    """Return the lines of a table of the rows. The reasons of a row are listed in the lines below the row."""
    cell_rows: list[tuple[str, ...]] = [HEADS]
    for row in rows:
        ends = (row.source, row.source_device), (row.target, row.target_device)
        from_to = " -> ".join(on_device(*end) for end in ends)
        measures = time_text(row.seconds), f"{row.calls}", f"{row.arrays}", size_text(row.bytes)
        cell_rows.append((*measures, row.how, from_to, row.place))
    widths = [max(map(len, column)) for column in zip(*cell_rows, strict=True)]
    text_lines = []
    for *cells, place in cell_rows:
        numbers = [cell.rjust(width) for cell, width in zip(cells[:4], widths[:4], strict=True)]
        text_cells = [cell.ljust(width) for cell, width in zip(cells[4:], widths[4:6], strict=True)]
        text_lines.append(" ".join([*numbers, *text_cells, place]))
    for row_number, row in enumerate(rows, 1):
        for reason, count in row.why.items():
            text_lines[row_number] += f"\n{' ' * widths[0]} {reason}, {counted(count, 'time')}"
    return text_lines


def counted(count: int, noun: str) -> str:
    """Return a count with a noun, in the plural unless the count is 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


def time_text(seconds: float) -> str:
    """Return a time in seconds as a text with three digits and a unit."""
    return _scaled(seconds * 1e6, "us", "ms", "s")


def size_text(size: float) -> str:
    """Return a size in bytes as a text with up to three digits and a unit."""
    return f"{size} B" if size < 1000 else _scaled(size / 1000, "kB", "MB", "GB", "TB")


def _scaled(number: float, *units: str) -> str:
    """Return a number as a text with three digits, in the first unit in which it is less than 1000."""
    unit_index = 0
    while number >= 999.5 and unit_index < len(units) - 1:
        number, unit_index = number / 1000, unit_index + 1
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f} {units[unit_index]}"
