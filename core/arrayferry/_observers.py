"""The observers of conversions. While `observers` is empty, nothing is noted.

Notes say why a conversion did not take the planned route. They belong to the call that is open in this
thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple, Protocol

from ._cache import Cache
from ._errors import describe_error


class CallSite(NamedTuple):
    """A line of code."""

    file: str
    line: int
    function: str


class Note(NamedTuple):
    """Why arrays of a pair of libraries did not take the planned route."""

    source: str
    target: str
    reason: str


class Observer(Protocol):
    """An observer of conversions."""

    def watch(self, compiled: Any, convert: Callable[[Any], Any], value: Any) -> Any:
        """Convert a value, and report it to all observers. Only the first of them is asked to."""

    def record(
        self, site: CallSite, crossings: Sequence[Any], notes: Sequence[Note], seconds: float
    ) -> None:
        """Count a call, or one that raised. This must not raise."""

    def record_unread(self) -> None:
        """Count a call whose value could not be examined."""


observers: list[Observer] = []
"""The current observers. The list is modified in place, so it can be imported by name."""


class OpenConversion:
    """A conversion that runs in this thread, and is watched.

    Attributes:
        notes: the notes.
        within: the seconds of calls inside this one, which are counted separately.
        raised: the direct converter whose error was noted last.
    """

    __slots__ = ("notes", "raised", "within")

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.within = 0.0
        self.raised: object = None


class _Open(threading.local):
    call: OpenConversion | None = None


open_conversion = _Open()
"""The innermost call of this thread."""


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
    text = " ".join(word if isinstance(word, str) else _described(word) for word in words)
    if error is not None:
        text += f" ({describe_error(error)})"
    text = " ".join(text.split())
    call.notes.append(Note(source, target, text if len(text) <= 200 else text[:197] + "..."))


MAX_NOTES = 10_000
"""The maximum number of notes of one call."""


def _described(thing: object) -> str:
    try:
        return repr(thing)
    except Exception:
        return f"a {type(thing).__name__}"


OURS = frozenset(("arrayferry", "arrayferry_plugins", "arrayferry_gym"))
"""Packages that never count as the user's code."""
BETWEEN = frozenset(
    (
        "asyncio", "concurrent", "contextlib", "dask", "distributed", "functools", "gymnasium", "jax",
        "multiprocessing", "threading", "torch",
    )
)  # fmt: skip
"""Packages that call back. They count as the user's code only if no other package is found."""

CALLED = (
    "arrayferry._api",
    "arrayferry._conversion.conversion",
    "arrayferry._conversion.compiled",
    "arrayferry._trace.recorder",
    "arrayferry._trace.watch",
)
"""The modules of the functions that users call, and of those that these call for a conversion."""

_YOURS, _BETWEEN, _OURS = range(3)
_known: Cache[str, int] = Cache(10_000)


def call_site(frame: FrameType | None) -> CallSite:
    """Return the line of the user's code that a frame was called from.

    That is the first frame outside of arrayferry, and of the libraries that call back, such as gymnasium and
    Dask. If no such frame exists, as in a thread of a library, it is the first outside of arrayferry.
    """
    second: FrameType | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        whose = _known.get(file)
        if whose is None:
            whose = _known[file] = _whose(frame)
        if whose == _YOURS:
            break
        if whose == _BETWEEN and second is None:
            second = frame
        frame = frame.f_back
    caller = frame or second
    if caller is None:
        return CallSite("", 0, "")
    code = caller.f_code
    return CallSite(code.co_filename, caller.f_lineno or 0, code.co_name)


def is_asked_by_user(frame: FrameType | None) -> bool:
    """Return whether the user's own code called a conversion, so that its options are the user's."""
    while frame is not None and frame.f_globals.get("__name__") in CALLED:
        frame = frame.f_back
    return frame is not None and _whose(frame) == _YOURS


def _whose(frame: FrameType) -> int:
    file = frame.f_code.co_filename
    if file.startswith("<arrayferry"):  # code that was written for a structure
        return _OURS
    if file.startswith("<") and not file.startswith("<frozen"):  # typed in, or a doctest
        return _YOURS
    top = str(frame.f_globals.get("__name__")).partition(".")[0]
    if top in OURS:
        return _OURS
    return _BETWEEN if top in BETWEEN else _YOURS


def _leave_to_parent() -> None:
    """In a forked process, watch nothing: the observers are in the parent."""
    observers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
