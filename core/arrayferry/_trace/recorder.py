"""`trace`: which arrays cross between libraries and devices in a part of a program, where, and at what cost."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry._conversion.compiled import CompiledConversion
from arrayferry._conversion.conversion import notice_observers
from arrayferry._errors import TraceWarning
from arrayferry._forks import ForkSafeLock, process
from arrayferry._observers import CallSite, Note, observers
from arrayferry._options import check_count, check_flag
from arrayferry._repr import never_raises

from .crossings import Crossing
from .rows import TraceFinding, TraceRow, count_reason
from .trips import RoundTrips
from .view import Table
from .watch import watch

MAX_ROWS = 10_000
"""The maximum number of rows of a trace. Later places are counted together."""


def trace(*, hot: int = 100, warn: bool = True) -> Trace:
    """Count all crossings of arrays between libraries and devices in a block of code.

    All conversions in the process are counted, in every thread. Outside the block nothing is counted, and
    conversions cost no more than without a trace.

    Args:
        hot: the number of calls from which a line counts as a hot loop. Avoidable copies in hot loops are reported.
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
        >>> row.source, row.target, row.calls, row.arrays, row.bytes, row.how
        ('numpy', 'torch', 3, 6, 480000, 'shared')
    """
    check_count("hot", hot, 1)
    check_flag("warn", warn)
    return Trace(hot, warn)


class Trace:
    """All crossings of arrays in a block of code, as returned by `arrayferry.trace`.

    Use it in a `with` statement. It can be read inside the block and after it. If it is used again, it continues
    counting. Traces can be nested, and used in several threads: each counts the crossings of all threads. In a
    process forked inside the block, nothing is counted.

    Attributes:
        calls: the number of conversions in which an array crossed, or that raised an error.
        unread: the number of conversions whose value could not be examined.
    """

    def __init__(self, hot: int, warn: bool) -> None:
        self.calls: int = 0
        self.unread: int = 0
        self._hot = hot
        self._warn = warn
        self._lock = threading.RLock()
        self._process = process.forks
        self._depth = 0
        self._begun = False
        self._rows: dict[tuple[Any, ...], TraceRow] = {}
        self._remedies: dict[str, str] = {}
        self._trips = RoundTrips()
        self._warned: set[tuple[Any, ...]] = set()

    def __enter__(self) -> Trace:
        """Start counting."""
        if self._process != process.forks:  # a thread of the other process may hold the lock
            self._lock = threading.RLock()
            self._process, self._depth = process.forks, 0
        with _switching.lock:
            self._depth += 1
            self._begun = True
            if self._depth == 1:
                observers.append(self)
                notice_observers()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Stop counting, and warn of findings."""
        if self._process != process.forks or not self._depth:
            return
        with _switching.lock:
            self._depth -= 1
            if self._depth:
                return
            observers[:] = [other for other in observers if other is not self]
            with self._lock:
                self._trips.forget_arrays()
            if not observers:
                notice_observers()
        if self._warn and kind is None:
            self._warn_of_findings()

    @property
    def rows(self) -> list[TraceRow]:
        """One row for each line of code and pair of libraries and devices, slowest first."""
        rows = [
            dataclasses.replace(row, fallbacks=dict(row.fallbacks), avoidable=dict(row.avoidable))
            for row in list(self._rows.values())
        ]
        return sorted(rows, key=lambda row: (-row.seconds, row.file, row.line))

    @property
    def arrays(self) -> int:
        """The number of arrays that crossed."""
        return sum(row.arrays for row in list(self._rows.values()))

    @property
    def bytes(self) -> int:
        """The total size of the results in bytes."""
        return sum(row.bytes for row in list(self._rows.values()))

    @property
    def seconds(self) -> float:
        """The total time of the conversions in all threads, in seconds."""
        return sum(row.seconds for row in list(self._rows.values()))

    @property
    def findings(self) -> list[TraceFinding]:
        """Round trips, and avoidable copies in hot loops."""
        return [finding for _, finding in self._found()]

    def table(self, rows: int = 20, *, width: int | None = None) -> Table:
        """Return a table of the slowest lines, with totals and findings.

        Args:
            rows: the maximum number of rows.
            width: the width of the text in characters, None for the width of the terminal.

        Returns:
            A table that prints as text.

        Raises:
            OptionError: `rows` or `width` is invalid.
        """
        check_count("rows", rows, 1)
        if width is not None:
            check_count("width", width, 60)
        return Table(self.to_dict(), rows, width, begun=self._begun)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text and numbers, ready for JSON."""
        extra = ("place", "how")
        return {
            "calls": self.calls,
            "arrays": self.arrays,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "unread": self.unread,
            "rows": [
                {**dataclasses.asdict(row), **{name: getattr(row, name) for name in extra}}
                for row in self.rows
            ],
            "findings": [
                {**dataclasses.asdict(finding), "text": str(finding)} for finding in self.findings
            ],
        }

    def __str__(self) -> str:
        return str(self.table())

    @never_raises
    def __repr__(self) -> str:
        state = "running" if self in observers else "stopped"
        return f"<arrayferry.Trace, {state}: {self.calls} calls, {self.arrays} arrays>"

    def __reduce__(self) -> Any:
        raise TypeError("a trace belongs to its process and cannot be pickled: send t.to_dict()")

    # Called by conversions.

    def watch(self, compiled: CompiledConversion, convert: Callable[[Any], Any], value: Any) -> Any:
        """Convert a value, and report it to all traces."""
        return watch(compiled, convert, value)

    def record(
        self,
        site: CallSite,
        crossings: Sequence[Crossing],
        notes: Sequence[Note],
        seconds: float,
    ) -> None:
        """Count a conversion. Conversions call it.

        Args:
            site: the line of the user's code.
            crossings: the arrays that crossed, or the one that failed.
            notes: why ways other than the best were taken.
            seconds: the time it took.
        """
        weight = sum(crossing.nbytes + 4096 for crossing in crossings)
        with self._lock:
            if not self._depth:  # it has ended since the conversion began
                return
            self.calls += 1
            by_row: dict[int, tuple[TraceRow, list[Crossing]]] = {}
            for crossing in crossings:
                row = self._row(site, crossing)
                by_row.setdefault(id(row), (row, []))[1].append(crossing)
                if crossing.nbytes and crossing.after is not None:
                    self._trips.follow(site, crossing)
            for row, crossed in by_row.values():
                share = sum(crossing.nbytes + 4096 for crossing in crossed) / weight
                self._count(row, crossed, seconds * share)
            rows = [row for row, _ in by_row.values()]
            for note in notes:
                pair = note.source, note.target
                about = [row for row in rows if (row.source, row.target) == pair]
                count_reason((about or rows)[0].fallbacks, note.reason)

    def _count(self, row: TraceRow, crossings: Sequence[Crossing], seconds: float) -> None:
        """Count the part of a conversion that belongs to a row."""
        row.calls += 1
        row.seconds += seconds
        row.slowest = max(row.slowest, seconds)
        row.avoidable_calls += any(crossing.avoidable for crossing in crossings)
        for crossing in crossings:
            row.arrays += crossing.how != "failed"
            row.bytes += crossing.nbytes
            setattr(row, crossing.how, getattr(row, crossing.how) + 1)
            if crossing.avoidable is not None:
                reason, remedy = crossing.avoidable
                count_reason(row.avoidable, reason)
                if len(self._remedies) < MAX_ROWS:
                    self._remedies[reason] = remedy

    def record_unread(self) -> None:
        """Count a conversion whose value could not be examined. Conversions call it."""
        with self._lock:
            if self._depth:
                self.unread += 1

    def _row(self, site: CallSite, crossing: Crossing) -> TraceRow:
        key: tuple[Any, ...] = (
            *site, crossing.source, crossing.target, crossing.source_device, crossing.target_device,
        )  # fmt: skip
        row = self._rows.get(key)
        if row is None:
            route = crossing.route
            if len(self._rows) >= MAX_ROWS:
                key, route = ("", 0, "(other lines)", "", "", "", ""), ""
            row = self._rows.setdefault(key, TraceRow(*key))
            row.route = route
        return row

    # Findings.

    def _found(self) -> list[tuple[tuple[Any, ...], TraceFinding]]:
        findings = list(self._trips.findings())
        for key, row in list(self._rows.items()):
            reasons = dict(row.avoidable)
            times, calls = sum(reasons.values()), row.avoidable_calls
            if row.calls < self._hot or calls * 2 < row.calls:
                continue
            why = max(reasons, key=lambda reason: reasons[reason])
            of = f"{calls} of {row.calls}" if calls < row.calls else f"{calls}"
            reason = (
                f"{times} {'arrays were' if times > 1 else 'array was'} copied in {of} calls from "
                f"{row.source} to {row.target}, which can share memory: {why}"
            )
            remedy = self._remedies.get(why, "")
            place = row.file, row.line, row.function
            findings.append((key, TraceFinding("hot loop", *place, times, reason, remedy)))
        return findings

    def _warn_of_findings(self) -> None:
        for key, finding in self._found():
            if key not in self._warned:
                self._warned.add(key)
                file = finding.file or "<unknown>"
                warnings.warn_explicit(str(finding), TraceWarning, file, finding.line or 1)


_switching = ForkSafeLock()
