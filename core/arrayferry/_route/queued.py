"""Queued copies: the source of a copy is stored until the device has made the copy.

A copy on a GPU is queued, and its source may be deleted before the copy is made. The library would then reuse the
memory of the source for its next array, and the copy would read that array. So sources are stored here, unless their
library protects them by itself. A thread drops a source soon after its copy is made. A callback on the stream could
not do so: it would delay later work on the stream until it has the GIL, and it must not free CUDA memory.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from arrayferry._errors import describe_error
from arrayferry._plugin.backend import native
from arrayferry._plugin.call import call_backend, warn_of_plugin
from arrayferry._types import AnyArray, Device

from .devices import tells_when_done

AT_ONCE = 8
"""The number of copies that one call of `release` checks by default."""
MOST = 2**31
"""If the stored sources have more bytes than this, a conversion waits until some of their copies are made."""
PAUSE = 0.004
"""Seconds between two checks of the copies."""
LINGER = 250
"""The thread that drops sources ends after this many checks in a row without a stored source."""

_kept: deque[tuple[Callable[[], bool], Any, int]] = deque()
_watcher: Thread | None = None


def release(count: int = AT_ONCE) -> None:
    """Check the oldest `count` copies, and drop the sources of those that are made."""
    for _ in range(min(count, len(_kept))):
        try:
            is_done, source, size = _kept.popleft()
        except IndexError:  # another thread removed the last source
            return
        with suppress(Exception):
            # if is_done() raises, the device is lost, so that no copy is made any more: drop the source
            if not is_done():
                _kept.append((is_done, source, size))


def let_go() -> bool:
    """Wait until all copies are made, and drop their sources. Return whether any source was stored."""
    had_sources = bool(_kept)
    while _kept:
        release(len(_kept))
        time.sleep(PAUSE)
    return had_sources


def _watch() -> None:
    """Drop sources soon after their copies are made, even if no other array is converted."""
    global _watcher
    # by default, an event query in this thread would invalidate a CUDA graph capture in another thread
    with suppress(Exception):
        import ctypes

        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        driver.cuThreadExchangeStreamCaptureMode(
            ctypes.byref(ctypes.c_int(2))
        )  # 2 is the "relaxed" mode
    idle_checks = 0
    while idle_checks < LINGER or _kept:
        time.sleep(PAUSE)
        release(len(_kept))
        idle_checks = 0 if _kept else idle_checks + 1
        if idle_checks >= LINGER:
            _watcher = None  # the next source that is stored starts a new thread


def duplicate(backend: Any, x: AnyArray, device: Device = None) -> Any:
    """Copy an array, or move it to another device. The array is stored until the copy or move is done."""
    if device is None:
        y = call_backend(backend, "copy", x)
    else:
        y = call_backend(backend, "devices.move", x, device)
        if y is NotImplemented:
            values = native(call_backend(backend, "to_numpy", x))
            y = call_backend(backend, "from_numpy", values, device)
    keep_source(backend, x, y)
    return y


def keep_source(backend: Any, source: Any, copy: Any) -> bool:
    """Store the source of a queued copy until the copy is made, unless the library protects the source by itself.

    Returns:
        Whether the source is now stored or protected until the copy is made.
    """
    if not tells_when_done(backend):
        return False
    try:
        is_done = backend.devices.fence(copy)
    except Exception as error:
        warn_of_plugin(
            f"devices.fence() of the backend {backend.name!r} raised {describe_error(error)}, so the sources of its "
            "copies are not stored until the copies are made"
        )
        return False
    if is_done is None:
        return False
    with suppress(Exception):
        if backend.devices.protect(source):
            return True
    release()
    size = getattr(source, "nbytes", 0)
    _kept.append((is_done, source, size if isinstance(size, int) else 0))
    global _watcher
    if _watcher is None or not _watcher.is_alive():  # in a forked process, the thread is not alive
        _watcher = Thread(target=_watch, name="arrayferry-sources", daemon=True)
        _watcher.start()
    while len(_kept) > 1 and sum(size for *_, size in tuple(_kept)) > MOST:
        release(len(_kept))
        time.sleep(PAUSE / 10)
    return True
