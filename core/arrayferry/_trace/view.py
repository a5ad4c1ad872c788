"""How a trace is shown: as text, as HTML, and as a picture. All three are made from what `Trace.to_dict` returns."""

from __future__ import annotations

import html
import os
import shutil
import sys
import textwrap
from typing import Any

from arrayferry._errors import BackendUnavailableError
from arrayferry._repr import html_table, html_view, often

__all__ = ["Table", "draw", "short_file"]

LEAST_PLACE = 10
"""The fewest characters that are left for a line of code and its mark."""
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
        trace: what `Trace.to_dict` returned.
        rows: how many lines at most.
        width: characters in a line, None for the width of the terminal.
        begun: whether the trace has begun at all.
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
        notes: list[str] = []
        lines = [[*HEADS], *(self._cells(row, notes) for row in self._rows)]
        fixed = [max(len(line[column]) for line in lines) for column in range(5)]
        rest = width - sum(fixed) - 7
        longest = max(len(line[6]) for line in lines)
        pair = min(max(len(line[5]) for line in lines), max(rest - longest, rest * 3 // 5))
        pair = max(min(pair, rest - LEAST_PLACE), 1)
        text = []
        for line in lines if self._rows else []:
            cells = [line[c].rjust(fixed[c]) for c in range(4)] + [line[4].ljust(fixed[4])]
            pair_text = _clipped(line[5], pair).ljust(pair)
            place, _, mark = line[6].partition("\t")
            cells += ["", pair_text, _clipped_place(place, rest - pair - len(mark)) + mark]
            text.append(" ".join(cells).rstrip())
        for note in [*self._summary(), *notes]:
            text += textwrap.wrap(note, width, subsequent_indent="  ") or [""]
        for finding in self._trace["findings"]:
            text += ["", *textwrap.wrap(_capital(finding["text"]), width, subsequent_indent="  ")]
        return "\n".join(text)

    __repr__ = __str__

    def _cells(self, row: dict[str, Any], notes: list[str]) -> list[str]:
        mark = ""
        remarks = _remarks(row)
        if remarks:
            mark = f"\t [{len(notes) + 1}]"
            notes.append(f"[{len(notes) + 1}] {'; '.join(remarks)}")
        return [
            _time(row["seconds"]),
            _number(row["calls"]),
            _number(row["arrays"]),
            _size(row["bytes"]),
            row["how"],
            _pair(row),
            row["place"] + mark,
        ]

    def _summary(self) -> list[str]:
        trace = self._trace
        if not trace["rows"] and not trace["unread"]:
            return ["No array crossed." if self._begun else f"Nothing was counted. {HOW_TO_BEGIN}"]
        calls, arrays = trace["calls"], trace["arrays"]
        text = (
            f"{calls} call{'s' * (calls != 1)}, {arrays} array{'s' * (arrays != 1)}, "
            f"{_size(trace['bytes'])}, {_time(trace['seconds'])}"
        )
        more = len(trace["rows"]) - len(self._rows)
        if more:
            text += f"; {more} more line{'s' * (more != 1)} not shown"
        if trace["unread"]:
            unread = trace["unread"]
            text += f"; {unread} value{'s' * (unread != 1)} could not be examined"
        return ["", text] if self._rows else [text]

    @html_view
    def _repr_html_(self) -> str:
        rows: list[list[str | tuple[str, str]]] = []
        for row in self._rows:
            where = f"{row['file']}:{row['line']}" if row["file"] else ""
            remarks = "\n".join(_remarks(row))
            rows.append([*self._cells(row, [])[:6], row["route"], (row["place"], where), remarks])
        parts = [html_table([*HEADS[:6], "route", "place", "remarks"], rows, numbers=4)]
        parts += [f"<p>{html.escape(line)}</p>" for line in self._summary() if line]
        findings = [_capital(finding["text"]) for finding in self._trace["findings"]]
        if findings:
            parts += ["<ul>", *(f"<li>{html.escape(text)}</li>" for text in findings), "</ul>"]
        return "".join(parts)


def draw(trace: dict[str, Any], rows: int, ax: Any) -> Any:
    """Draw the time of lines as bars.

    Args:
        trace: what `Trace.to_dict` returned.
        rows: how many lines at most.
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
        size = (8, 1.4 + 0.5 * max(1, len(shown)))
        _, ax = pyplot.subplots(figsize=size, layout="constrained")
    longest = max((row["seconds"] for row in shown), default=0.0)
    factor, unit = next(
        (f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "us")) if longest * f >= 1 or f == 1e6
    )
    for index, row in enumerate(shown):
        ax.barh(index, row["seconds"] * factor, color=COLOURS[row["how"]], height=0.7)
        text = f" {_time(row['seconds'])}"
        ax.text(row["seconds"] * factor, index, text, va="center", fontsize=8)
    names = [
        f"{_escaped(row['place'])}\n{_pair(row)}, {_number(row['calls'])} "
        f"call{'s' * (row['calls'] != 1)}, {_size(row['bytes'])}"
        for row in shown
    ]
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


def short_file(file: str) -> str:
    """Return the name of a file without its folders; for a cell of a notebook, its number."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is not None:
        try:
            words = ipython.get_ipython().compile.format_code_name(file)
            if words is not None:
                return " ".join(words)
        except Exception:  # not in a notebook, or another version of IPython
            pass
    return os.path.basename(file)


def _remarks(row: dict[str, Any]) -> list[str]:
    remarks = []
    if row["how"] == "mixed":
        ways = ("shared", "copied", "transferred", "computed")
        remarks.append(", ".join(f"{row[way]} {way}" for way in ways if row[way]))
    if row["calls"] > 2 and row["slowest"] > 0.5 * row["seconds"]:
        remarks.append(f"one call took {_time(row['slowest'])}")
    if row["failed"] and row["how"] != "failed":
        remarks.append(f"{row['failed']} failed")
    if row["route"].count(" -> ") > 1:
        remarks.append(f"by {row['route']}")
    remarks += [f"{reason}, {often(count)}" for reason, count in row["fallbacks"].items()]
    return remarks


def _pair(row: dict[str, Any]) -> str:
    source, target = row["source"] or "?", row["target"] or "?"
    if row["source_device"] not in ("cpu", ""):
        source += f" {row['source_device']}"
    if row["target_device"] not in ("cpu", ""):
        target += f" {row['target_device']}"
    return f"{source} -> {target}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _escaped(text: str) -> str:
    return text.replace("$", r"\$")


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 1)] + "..."


def _clipped_place(place: str, width: int) -> str:
    """Shorten a place so that its line number is kept."""
    if len(place) <= width:
        return place
    line = place.partition(" in ")[0]
    return line if len(line) <= width else f"...{line[3 - max(width, 4) :]}"


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.9995 or unit == "us":
            return f"{_three(seconds * factor)} {unit}"
    raise AssertionError


def _size(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        size /= 1000
        if size < 999.5 or unit == "PB":
            return f"{_three(size)} {unit}"
    raise AssertionError


def _number(count: int) -> str:
    if count < 100_000:
        return str(count)
    size = float(count)
    for unit in ("k", "M", "G"):
        size /= 1000
        if size < 999.5 or unit == "G":
            return f"{_three(size)}{unit}"
    raise AssertionError


def _three(number: float) -> str:
    """Write a number with three digits."""
    return (
        f"{number:.2f}"
        if number < 9.995
        else f"{number:.1f}"
        if number < 99.95
        else f"{number:.0f}"
    )
