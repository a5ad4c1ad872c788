"""The views of a trace: text, made from the dict that `Trace.to_dict` returns."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any, get_args

from .crossings import How

LEAST_PLACE = 10
"""The minimum number of characters for a line of code and its mark."""
HEADS = ("time", "calls", "arrays", "size", "how", "from -> to", "place")
HOW_TO_BEGIN = "A trace counts inside a block: with arrayferry.trace() as t: ..."


class Table:
    """A trace as a table. `Trace.table` makes it.

    Args:
        trace: the dict that `Trace.to_dict` returns.
        rows: the maximum number of lines.
        width: the width in characters, None for that of the terminal.
        begun: whether the trace was ever started.
    """

    def __init__(
        self, trace: dict[str, Any], rows: int, width: int | None, *, begun: bool = True
    ) -> None:
        self._begun = begun
        self._trace = trace
        self._rows = trace["rows"][:rows]
        self._width = width

    def __str__(self) -> str:
        width = self._width or max(60, shutil.get_terminal_size().columns)
        lines, marks = [[*HEADS]], [""]
        notes: list[str] = []
        for row in self._rows:
            remarks = "; ".join(_remarks(row))
            marks.append(f" [{len(notes) + 1}]" if remarks else "")
            notes += [f"[{len(notes) + 1}] {remarks}"] if remarks else []
            lines.append(_cells(row))
        text = _aligned(lines, marks, width) if self._rows else []
        for note in [*self._summary(), *notes]:
            text += textwrap.wrap(note, width, subsequent_indent="  ") or [""]
        for finding in self._findings():
            text += ["", *textwrap.wrap(finding, width, subsequent_indent="  ")]
        return "\n".join(text)

    __repr__ = __str__

    def _findings(self) -> list[str]:
        texts = [finding["text"] for finding in self._trace["findings"]]
        return [text[:1].upper() + text[1:] for text in texts]

    def _summary(self) -> list[str]:
        trace = self._trace
        if not trace["rows"] and not trace["unread"]:
            return ["No array crossed." if self._begun else f"Nothing was counted. {HOW_TO_BEGIN}"]
        counts = _counted(trace["calls"], "call"), _counted(trace["arrays"], "array")
        text = ", ".join([*counts, _size(trace["bytes"]), _time(trace["seconds"])])
        more = len(trace["rows"]) - len(self._rows)
        if more:
            text += f"; {_counted(more, 'more line')} not shown"
        if trace["unread"]:
            text += f"; {_counted(trace['unread'], 'value')} could not be examined"
        return ["", text] if self._rows else [text]


def _cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row, in the order of the heads."""
    sides = []
    for side in ("source", "target"):
        device = row[f"{side}_device"]
        sides.append((row[side] or "?") + (f" {device}" if device not in ("cpu", "") else ""))
    return [
        _time(row["seconds"]),
        _number(row["calls"]),
        _number(row["arrays"]),
        _size(row["bytes"]),
        row["how"],
        " -> ".join(sides),
        row["place"],
    ]


def _aligned(lines: list[list[str]], marks: list[str], width: int) -> list[str]:
    """Align cells in columns. The last two are shortened to the width, but not the marks behind them."""
    fixed = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:5]]
    rest = width - sum(fixed) - 7
    longest = max(len(line[6]) + len(mark) for line, mark in zip(lines, marks, strict=True))
    pair = min(max(len(line[5]) for line in lines), max(rest - longest, rest * 3 // 5))
    pair = max(min(pair, rest - LEAST_PLACE), 1)
    text = []
    for (*cells, how, way, place), mark in zip(lines, marks, strict=True):
        columns = [cell.rjust(size) for cell, size in zip(cells, fixed, strict=False)]
        columns += [how.ljust(fixed[4]), "", _clipped(way, pair).ljust(pair)]
        columns.append(_clipped_place(place, rest - pair - len(mark)) + mark)
        text.append(" ".join(columns).rstrip())
    return text


def _remarks(row: dict[str, Any]) -> list[str]:
    remarks = []
    if row["how"] == "mixed":
        remarks.append(", ".join(f"{row[how]} {how}" for how in get_args(How) if row[how]))
    if row["calls"] > 2 and row["slowest"] > 0.5 * row["seconds"]:
        remarks.append(f"one call took {_time(row['slowest'])}")
    if row["failed"] and row["how"] != "failed":
        remarks.append(f"{row['failed']} failed")
    if row["route"].count(" -> ") > 1:
        remarks.append(f"by {row['route']}")
    remarks += [f"{reason}, {often(count)}" for reason, count in row["fallbacks"].items()]
    return remarks


def often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 1)] + "..."


def _clipped_place(place: str, width: int) -> str:
    """Shorten a place so that its line number is kept."""
    if len(place) <= width:
        return place
    line = place.partition(" in ")[0]
    return line if len(line) <= width else f"...{line[3 - max(width, 4) :]}"


def _time(seconds: float) -> str:
    return _scaled(seconds * 1e6, " us", " ms", " s")


def _size(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    return _scaled(size / 1000, " kB", " MB", " GB", " TB", " PB")


def _number(count: int) -> str:
    return str(count) if count < 100_000 else _scaled(count / 1000, "k", "M", "G")


def _scaled(number: float, *units: str) -> str:
    """Write a number with three digits, in the first unit in which it is less than 1000."""
    power = 0
    while number >= 999.5 and power < len(units) - 1:
        number, power = number / 1000, power + 1
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f}{units[power]}"
