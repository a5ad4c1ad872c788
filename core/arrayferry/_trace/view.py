"""The views of a trace: text, HTML and a plot, all made from the dict that `Trace.to_dict` returns."""

from __future__ import annotations

import html
import shutil
import textwrap
from typing import Any, get_args

from arrayferry._errors import BackendUnavailableError
from arrayferry._repr import html_table, html_view, often

from .crossings import How

LEAST_PLACE = 10
"""The minimum number of characters for a line of code and its mark."""
HEADS = ("time", "calls", "arrays", "size", "how", "from -> to", "place")
HOW_TO_BEGIN = "A trace counts inside a block: with arrayferry.trace() as t: ..."
COLOURS = {
    "shared": "#2a9d8f",
    "copied": "#e9c46a",
    "transferred": "#e76f51",
    "computed": "#457b9d",
    "mixed": "#9a8c98",
    "failed": "#333333",
}


class Table:
    """A trace as a table: text in a terminal, HTML in a notebook. `Trace.table` makes it.

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

    @html_view
    def _repr_html_(self) -> str:
        rows: list[list[str | tuple[str, str]]] = []
        for row in self._rows:
            where = f"{row['file']}:{row['line']}" if row["file"] else ""
            remarks = "\n".join(_remarks(row))
            *cells, place = _cells(row)
            rows.append([*cells, row["route"], (place, where), remarks])
        parts = [html_table([*HEADS[:6], "route", "place", "remarks"], rows, numbers=4)]
        parts += [f"<p>{html.escape(line)}</p>" for line in self._summary() if line]
        findings = [f"<li>{html.escape(text)}</li>" for text in self._findings()]
        if findings:
            parts += ["<ul>", *findings, "</ul>"]
        return "".join(parts)


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


def draw(trace: dict[str, Any], rows: int, ax: Any) -> Any:
    """Draw the time of lines as bars.

    Args:
        trace: the dict that `Trace.to_dict` returns.
        rows: the maximum number of lines.
        ax: the axes, None for new ones.

    Raises:
        BackendUnavailableError: Matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.patches import Patch
    except ImportError as error:
        raise BackendUnavailableError(
            f"the picture needs Matplotlib, which cannot be imported ({error})",
            remedy="Run: pip install matplotlib",
            backend="matplotlib",
        ) from error
    shown = trace["rows"][:rows]
    if ax is None:
        height = 1.4 + 0.5 * max(1, len(shown))
        _, ax = pyplot.subplots(figsize=(8, height), layout="constrained")
    longest = max((row["seconds"] for row in shown), default=0.0)
    factor, unit = next(
        (f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "us")) if longest * f >= 1 or f == 1e6
    )
    names = []
    for index, row in enumerate(shown):
        time, calls, _, size, how, pair, place = _cells(row)
        end = row["seconds"] * factor
        ax.barh(index, end, color=COLOURS[how], height=0.7)
        ax.text(end, index, f" {time}", va="center", fontsize=8)
        place = place.replace("$", r"\$")
        names.append(f"{place}\n{pair}, {calls} call{'s' * (row['calls'] != 1)}, {size}")
    ax.set_yticks(range(len(shown)), names, fontsize=8)
    ax.invert_yaxis()
    ax.margins(x=0.25)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"time in {unit}")
    title = f"{_number(trace['arrays'])} arrays, {_size(trace['bytes'])}, {_time(trace['seconds'])}"
    if len(shown) < len(trace["rows"]):
        title += f"; {len(shown)} of {len(trace['rows'])} lines, those that took longest"
    ax.set_title(title if shown else "no array crossed", fontsize=10)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    used = [how for how in COLOURS if any(row["how"] == how for row in shown)]
    if used:
        ax.legend([Patch(color=COLOURS[how]) for how in used], used, fontsize=8, loc="lower right")
    return ax


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
