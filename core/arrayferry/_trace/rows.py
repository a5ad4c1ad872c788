"""The report of a trace: rows, one for each line of code and pair of libraries, and findings."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any, Literal, get_args

from arrayferry._repr import printable

from .crossings import How

MAX_REASONS = 16
"""The maximum number of reasons of a row."""


@dataclasses.dataclass
class TraceRow:
    """The crossings of one line of code, from one library and device to another.

    Attributes:
        file: the file of the line, "" if there is none.
        line: the line number.
        function: the function that contains the line.
        source: the library of the arrays, "python" for numbers that become arrays.
        target: the library of the results, "python" for actions that an adapter reads as numbers.
        source_device: the device of the arrays, "" if it is not known.
        target_device: the device of the results.
        route: the planned steps.
        calls: the number of conversions.
        arrays: the number of arrays that crossed.
        bytes: the size of the results in bytes.
        seconds: the time that the conversions took. The time for a tree is divided among its arrays by size. Work
            that a GPU has not finished when a conversion returns is not included.
        slowest: the time of the slowest call. This is often the first one, which starts a library.
        shared: how many results share the memory of their array.
        copied: how many were copied within one memory.
        transferred: how many were moved to another memory.
        computed: how many were computed or read from a file.
        failed: how many conversions raised an error.
        fallbacks: why a way other than the best was taken, and how often.
        avoidable: why arrays were copied although they could have been shared, and how often.
        avoidable_calls: how many calls had such an array.
    """

    file: str
    line: int
    function: str
    source: str
    target: str
    source_device: str
    target_device: str
    route: str = ""
    calls: int = 0
    arrays: int = 0
    bytes: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    shared: int = 0
    copied: int = 0
    transferred: int = 0
    computed: int = 0
    failed: int = 0
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    avoidable: dict[str, int] = dataclasses.field(default_factory=dict)
    avoidable_calls: int = 0

    @property
    def place(self) -> str:
        """The line in short form: `train.py:12 in step`."""
        return place_text(self.file, self.line, self.function)

    @property
    def how(self) -> How | Literal["mixed", "failed"]:
        """What happened to the arrays: "shared", "copied", "transferred", "computed", "mixed" or "failed"."""
        used: list[How] = [how for how in get_args(How) if getattr(self, how)]
        if not used:
            return "failed"
        return used[0] if len(used) == 1 else "mixed"


@dataclasses.dataclass(frozen=True)
class TraceFinding:
    """Something in a trace that costs more than necessary.

    Attributes:
        kind: "round trip" or "hot loop".
        file: the file of the line to change.
        line: the line number.
        function: the function that contains the line.
        times: how often it happened.
        reason: what happens there.
        remedy: what to do about it.
    """

    kind: Literal["round trip", "hot loop"]
    file: str
    line: int
    function: str
    times: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind} at {place_text(self.file, self.line, self.function)}: {self.reason}. {self.remedy}"


def place_text(file: str, line: int, function: str) -> str:
    """Return the place of a line of code in short form."""
    function = printable(function)
    if not file:
        return function or "(unknown)"
    name = f"{printable(_short_file(file))}:{line}"
    return name if function in ("", "<module>") else f"{name} in {function}"


def _short_file(file: str) -> str:
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


def count_reason(reasons: dict[str, int], reason: str) -> None:
    """Count a reason. Reasons beyond `MAX_REASONS` are counted together."""
    if reason not in reasons and len(reasons) >= MAX_REASONS:
        reason = "other reasons"
    reasons[reason] = reasons.get(reason, 0) + 1
