"""`trace`: counts the arrays that cross between libraries and devices in a block of code, by line of code."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from arrayferry._conversion.conversion import notice_observers
from arrayferry._errors import TraceWarning
from arrayferry._observers import CallSite, Note, observers
from arrayferry._options import checked_count
from arrayferry._utilities.options import check_flag
from arrayferry._utilities.text import never_raises

from .crossings import ArrayCrossing
from .rows import TraceFinding, TraceRow, counted, size_text, table_lines, time_text
from .trips import RoundTrips
from .watch import Counting, watch

MAX_ROWS = 10_000
"""The maximum number of rows of a trace. All further crossings are counted in one row."""


def trace(*, hot: int = 100, warn: bool = True) -> Trace:
    """Count all crossings of arrays between libraries and devices in a block of code.

    All conversions in the process are counted, in every thread. After the block nothing is counted, and a conversion
    takes no longer than before.

    Args:
        hot: the number of calls after which a line that makes an avoidable copy is reported as a hot loop.
        warn: whether to issue a `TraceWarning` for each finding at the end of the block.

    Returns:
        A `Trace`, a context manager.

    Raises:
        OptionError: an option is invalid.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> x = np.ones((100, 100))
        >>> with af.trace() as t:
        ...     for _ in range(3):
        ...         y = af.convert({"a": x, "b": x + 1}, "torch")
        >>> row = t.rows[0]
        >>> row.source, row.target, row.how, row.calls, row.arrays, row.bytes
        ('numpy', 'torch', 'shared', 3, 6, 480000)
    """
    hot = checked_count("hot", hot, 1)
    check_flag("warn", warn)
    return Trace(hot, warn)


class Trace:
    """All crossings of arrays in a block of code, as returned by `arrayferry.trace`.

    Use a trace in a `with` statement. You can read it inside the block and after it. If you use the same trace again,
    it continues counting. Traces can be nested, and used in several threads. Each trace counts the crossings of all
    threads. In a process forked inside the block, nothing is counted.

    Attributes:
        calls: the number of conversions in which an array crossed.
        arrays: the number of arrays that crossed.
        bytes: the total size of the results in bytes.
        seconds: the total time of the conversions in all threads, in seconds.
        unread: the number of conversions whose value could not be examined.
    """

    def __init__(self, hot: int, warn: bool) -> None:
        self.calls: int = 0
        self.arrays: int = 0
        self.bytes: int = 0
        self.seconds: float = 0.0
        self.unread: int = 0
        self._hot = hot
        self._warn = warn
        self._rows: dict[tuple[Any, ...], TraceRow] = {}
        self._remedies: dict[str, str] = {}
        self._trips = RoundTrips()
        self._reported: set[Any] = set()

    def __enter__(self) -> Trace:
        """Start counting."""
        try:
            with Counting.lock:
                observers.append(self)
                notice_observers()
            return self
        except BaseException as error:  # the trace must not remain active, even after an interrupt
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Stop counting. If the block raised no error, warn of findings."""
        with Counting.lock:
            if self not in observers:  # for example, if this process was forked inside the block
                return
            observers.remove(self)
            if self in observers:
                return
            self._trips.followed.clear()
            notice_observers()
        if self._warn and kind is None:
            self._warn_of_findings()

    @property
    def rows(self) -> list[TraceRow]:
        """A copy of each row, the row with the longest time first."""
        rows = [dataclasses.replace(row, why=dict(row.why)) for row in list(self._rows.values())]
        return sorted(rows, key=lambda row: (-row.seconds, row.file, row.line))

    @property
    def findings(self) -> list[TraceFinding]:
        """A `TraceFinding` for each kind of round trip, and for each avoidable copy in a hot loop."""
        findings = list(self._trips.findings())
        for row in self.rows:
            for reason, calls in row.why.items():
                if calls >= self._hot and reason in self._remedies:
                    times_text = counted(calls, "time")
                    reason_text = f"an array was copied from {row.source} to {row.target}, which can share memory: {reason}, {times_text}"
                    site = row.file, row.line, row.function
                    remedy = self._remedies[reason]
                    findings.append(TraceFinding("hot loop", *site, calls, reason_text, remedy))
        return findings

    def table(self, rows: int = 20) -> str:
        """Return a table of the slowest lines as text, with totals and findings.

        Args:
            rows: the maximum number of rows.

        Raises:
            OptionError: `rows` is invalid.
        """
        rows = checked_count("rows", rows, 1)
        all_rows = self.rows
        if not all_rows and not self.unread:
            return "No array crossed in the block of: with arrayferry.trace() as t: ..."
        count_texts = counted(self.calls, "call"), counted(self.arrays, "array")
        total_text = ", ".join([*count_texts, size_text(self.bytes), time_text(self.seconds)])
        if len(all_rows) > rows:
            total_text += f"; {counted(len(all_rows) - rows, 'more row')} not shown"
        if self.unread:
            total_text += f"; {counted(self.unread, 'value')} could not be examined"
        lines = [*table_lines(all_rows[:rows]), ""] if all_rows else []
        texts = [f"\n{str(finding)[:1].upper()}{str(finding)[1:]}" for finding in self.findings]
        return "\n".join([*lines, total_text, *texts])

    @never_raises
    def __repr__(self) -> str:
        return self.table()

    watch: Any = staticmethod(watch)
    """The function that conversions call to convert a value and to report the conversion to all traces."""

    def record(
        self,
        site: CallSite,
        crossings: Sequence[ArrayCrossing] | None,
        notes: Sequence[Note],
        seconds: float,
    ) -> None:
        """Count a conversion. The caller must hold `Counting.lock`.

        Args:
            site: the line of the user's code.
            crossings: the arrays that crossed, or None if the value could not be examined.
            notes: pairs of libraries, each with a reason why an array was not converted by the planned route.
            seconds: the time that the conversion took.
        """
        self.unread += crossings is None
        if not crossings:
            return
        self.calls += 1
        self.arrays += len(crossings)
        self.bytes += sum(crossing.nbytes for crossing in crossings)
        self.seconds += seconds
        total_weight = sum(crossing.nbytes + 4096 for crossing in crossings)
        reasons_by_key: dict[tuple[Any, ...], set[str]] = {}
        for crossing in crossings:
            devices = crossing.source_device, crossing.target_device
            key: tuple[Any, ...] = (*site, crossing.source, crossing.target, *devices, crossing.how)
            if key not in self._rows and len(self._rows) >= MAX_ROWS:
                key = ("", 0, "(other lines)", "", "", "", "", "")
            row = self._rows.setdefault(key, TraceRow(*key))
            row.arrays += 1
            row.bytes += crossing.nbytes
            row.seconds += seconds * (crossing.nbytes + 4096) / total_weight
            reasons_by_key.setdefault(key, set()).add(crossing.why)
            self._trips.follow(site, crossing)
            if crossing.remedy:
                self._remedies[crossing.why] = crossing.remedy
        pairs = {key[3:5] for key in reasons_by_key}
        for key, reasons in reasons_by_key.items():
            self._rows[key].calls += 1
            noted = {reason for pair, reason in notes if pair == key[3:5] or pair not in pairs}
            self._rows[key].count_reasons((reasons | noted) - {""})

    def _warn_of_findings(self) -> None:
        for finding in self.findings:
            key = finding.kind, finding.file, finding.line, finding.remedy
            if key not in self._reported:
                self._reported.add(key)
                file = finding.file or "<unknown>"
                warnings.warn_explicit(str(finding), TraceWarning, file, finding.line or 1)
