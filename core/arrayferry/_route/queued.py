"""Queued copies: the source of a copy is kept until the device has made it.

A copy on a GPU is queued, and its source may be dropped before it is made. The library would
then reuse the memory for its next array, and the copy would read that array.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from arrayferry._errors import describe_error
from arrayferry._plugin.backend import native
from arrayferry._plugin.call import call_backend, warn_of_plugin

from .devices import tells_when_done

AT_ONCE = 8
"""The number of copies that are checked in one call."""

_kept: deque[tuple[Callable[[], bool], Any]] = deque()


def release() -> None:
    """Drop the sources of copies that are done by now."""
    for _ in range(min(AT_ONCE, len(_kept))):
        try:
            done, source = _kept.popleft()
        except IndexError:  # another thread was faster
            return
        with suppress(Exception):  # the device is lost, so no copy can still be made
            if not done():
                _kept.append((done, source))


def duplicate(backend: Any, x: Any, device: Any = None) -> Any:
    """Copy an array, or move it to another device. The source is kept until that is done."""
    call = ("copy", x) if device is None else ("devices.move", x, device)
    y = call_backend(backend, *call)
    if y is NotImplemented and device is not None:
        values = native(call_backend(backend, "to_numpy", x))
        y = call_backend(backend, "from_numpy", values, device)
    keep_source(backend, x, y)
    return y


def keep_source(backend: Any, source: Any, copy: Any) -> bool:
    """Keep the source of a copy that a library has queued until the copy is made.

    Returns:
        Whether the library says when that is.
    """
    if not tells_when_done(backend):
        return False
    try:
        done = backend.devices.fence(copy)
    except Exception as error:
        warn_of_plugin(
            f"devices.fence() of the backend {backend.name!r} raised {describe_error(error)}, so the sources of its "
            "copies are not kept until the copies are made"
        )
        return False
    if done is None:
        return False
    release()
    _kept.append((done, source))
    return True
