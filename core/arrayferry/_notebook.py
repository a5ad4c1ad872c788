"""Tracebacks in IPython: one frame of arrayferry, the one that the user called, and all frames of other code.

The tracebacks themselves stay complete, for Python, debuggers and logs.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

OURS = ("arrayferry", "arrayferry_plugins", "arrayferry_gym", "arrayferry_cli")
GENERATED = "<arrayferry:"


def render_traceback(error: BaseException) -> list[str]:
    """Return the lines that IPython shows for an error and its causes."""
    chain = list(_chain(error))
    complete = [each.__traceback__ for each in chain]
    try:
        error.__traceback__ = _linked(_without_inner(complete[0]))
        for cause, whole in zip(chain[1:], complete[1:], strict=True):
            foreign = [entry for entry in _entries(whole) if not _is_ours(entry)]
            cause.__traceback__ = _linked(foreign or _without_inner(whole))
        return _rendered(error)
    finally:
        for each, whole in zip(chain, complete, strict=True):
            each.__traceback__ = whole


def _rendered(error: BaseException) -> list[str]:
    """Let IPython write an error, in the mode that `%xmode` has set; Python, where there is no IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return traceback.format_exception(error)
    lines: list[str] = shell.InteractiveTB.structured_traceback(
        type(error), error, error.__traceback__
    )
    return lines


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _entries(whole: TracebackType | None) -> Iterator[TracebackType]:
    while whole is not None:
        yield whole
        whole = whole.tb_next


def _without_inner(whole: TracebackType | None) -> list[TracebackType]:
    """Leave out frames of arrayferry that were called from arrayferry."""
    kept = []
    inside = False
    for entry in _entries(whole):
        ours = _is_ours(entry)
        if not (ours and inside):
            kept.append(entry)
        inside = ours
    return kept


def _linked(entries: Sequence[TracebackType]) -> TracebackType | None:
    """Make a traceback of entries."""
    linked = None
    for entry in reversed(entries):
        linked = TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return linked


def _is_ours(entry: TracebackType) -> bool:
    frame = entry.tb_frame
    top = str(frame.f_globals.get("__name__")).partition(".")[0]
    return top in OURS or frame.f_code.co_filename.startswith(GENERATED)
