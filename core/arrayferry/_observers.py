"""The observers of conversions, and notes for them. While the list `observers` is empty, conversions make no notes.

A note says why an array was not converted by the planned route. It is added to `open_conversion.call`, the conversion
that runs in this thread.
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
"""The running traces. The list is modified in place, so other modules can import it. A forked process empties it."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=observers.clear)


Note = tuple[tuple[str, str], str]
"""A pair of libraries, and the reason why an array was not converted by the planned route between them."""
CallSite = tuple[str, int, str]
"""A line of code: the name of its file, the line number, and the name of its function."""


@dataclass(eq=False)
class OpenConversion:
    """An observed conversion that runs in one thread.

    Attributes:
        notes: the notes of this conversion, in order.
        within: the time in seconds of the conversions inside this conversion, which its own time does not include.
        raised: the direct converter whose error was noted last, or None.
    """

    notes: list[Note] = field(default_factory=list)
    within: float = 0.0
    raised: object = None


class _Open(threading.local):
    call: OpenConversion | None = None


open_conversion = _Open()
"""An object whose attribute `call` is the innermost observed conversion that runs in this thread, or None."""

MAX_NOTES = 10_000
"""The maximum number of notes of one conversion."""


def note(source: str, target: str, *words: object, error: BaseException | None = None) -> None:
    """Note why an array is not converted by the planned route. Call this only in rare cases, since it takes time.

    Args:
        source: the name of the backend or source of the array.
        target: the name of the backend of the result.
        words: the parts of the reason. They are converted by `str`, and joined by spaces.
        error: the error that is the cause.
    """
    opened = open_conversion.call
    if not observers or opened is None or len(opened.notes) >= MAX_NOTES:
        return
    cause = "" if error is None else f" ({describe_error(error)})"
    with suppress(Exception):  # `str` may raise an error for an object
        text = " ".join((" ".join(map(str, words)) + cause).split())
        opened.notes.append(((source, target), text if len(text) <= 200 else f"{text[:197]}..."))


BETWEEN = frozenset(
    (
        "asyncio", "concurrent", "contextlib", "dask", "distributed", "functools", "gymnasium", "jax",
        "multiprocessing", "threading", "torch",
    )
)  # fmt: skip
"""Packages that call functions of users. `call_site` returns a line in them only if it finds no line of a user."""


def call_site(frame: FrameType | None) -> tuple[CallSite, bool]:
    """Return the line of the user's code from which a frame was called, and whether that code called the core directly.

    The line is that of the first frame outside arrayferry and outside `BETWEEN`, the libraries that call functions of
    users, such as Gymnasium and Dask. If there is no such frame, as in a thread of a library, the line is that of the
    first frame outside arrayferry. The code of the user called the core directly if all frames up to that line belong to
    core packages.
    """
    between_frame, is_direct = None, True
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_filename.startswith("<arrayferry"):  # this frame runs the code of a plan
            package = "arrayferry"
        if package in BETWEEN:
            between_frame = between_frame or frame
        elif package not in OURS:
            break
        is_direct = is_direct and package in CORE
        frame = frame.f_back
    caller_frame = frame or between_frame
    if caller_frame is None:
        return ("", 0, ""), False
    code = caller_frame.f_code
    return (code.co_filename, caller_frame.f_lineno or 0, code.co_name), is_direct
