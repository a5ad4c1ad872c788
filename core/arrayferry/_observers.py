"""The observers of conversions, and the notes for them. While `observers` is empty, conversions make no notes.

Notes say why a conversion did not take the planned route. They belong to the conversion that runs in this thread.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ._errors import describe_error
from ._utilities.caller import CORE, OURS

observers: list[Any] = []
"""The traces that run. The list is modified in place, so it can be imported by name. A forked process has none."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=observers.clear)


Note = tuple[tuple[str, str], str]
"""A pair of libraries, and why an array did not take the planned route between them."""
CallSite = tuple[str, int, str]
"""A line of code: its file, number and function."""


@dataclass(eq=False)
class OpenConversion:
    """A conversion that runs in this thread, and is observed.

    Attributes:
        notes: the notes.
        within: the seconds of calls inside this one, which are counted separately.
        raised: the direct converter whose error was noted last.
    """

    notes: list[Note] = field(default_factory=list)
    within: float = 0.0
    raised: object = None


class _Open(threading.local):
    call: OpenConversion | None = None


open_conversion = _Open()
"""The innermost call of this thread."""

MAX_NOTES = 10_000
"""The maximum number of notes of one call."""


def note(source: str, target: str, *words: object, error: BaseException | None = None) -> None:
    """Note why an array does not take the planned route. Call it in rare cases only.

    Args:
        source: the name of the backend or source of the array.
        target: the name of the backend that it is converted to.
        words: the reason: text, and objects to describe by their `repr`.
        error: the error that is the cause.
    """
    call = open_conversion.call
    if not observers or call is None or len(call.notes) >= MAX_NOTES:
        return
    cause = "" if error is None else f" ({describe_error(error)})"
    with suppress(Exception):  # the `repr` of an object may raise
        text = " ".join((" ".join(map(str, words)) + cause).split())
        call.notes.append(((source, target), text if len(text) <= 200 else f"{text[:197]}..."))


BETWEEN = frozenset(
    (
        "asyncio", "concurrent", "contextlib", "dask", "distributed", "functools", "gymnasium", "jax",
        "multiprocessing", "threading", "torch",
    )
)  # fmt: skip
"""Packages that call the user's functions. Their code counts as the user's only if no other code is found."""


def call_site(frame: FrameType | None) -> tuple[CallSite, bool]:
    """Return the line of the user's code that a frame was called from, and whether it called the core directly.

    The line is that of the first frame outside arrayferry and outside libraries that call back, such as gymnasium
    and Dask. If there is none, as in a thread of a library, it is that of the first frame outside arrayferry.
    """
    between, directly = None, True
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_filename.startswith("<arrayferry"):  # this frame runs the code of a plan
            package = "arrayferry"
        if package in BETWEEN:
            between = between or frame
        elif package not in OURS:
            break
        directly = directly and package in CORE
        frame = frame.f_back
    caller = frame or between
    if caller is None:
        return ("", 0, ""), False
    code = caller.f_code
    return (code.co_filename, caller.f_lineno or 0, code.co_name), directly
