"""Closes objects with threads of their own, such as clients of Dask, before the garbage collector would close them.

The garbage collector may run between any two lines of a thread. If the thread holds a lock that closing an object
needs, it would then wait for itself forever.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


def construct_or_close(cls: type[Any], *args: Any, **options: Any) -> Any:
    """Return a new object of a class. If its constructor fails, close the object, and raise the error."""
    instance: Any = object.__new__(cls)
    try:
        instance.__init__(*args, **options)
    except BaseException:
        with contextlib.suppress(Exception):  # ignore this error, and raise that of the constructor
            instance.close()
        raise
    return instance


def close_in_thread(close: Callable[[], object]) -> None:
    """Call `close` in another thread, and wait a second at most. When the process ends, call `close` in this thread."""
    if threading.main_thread().is_alive():
        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(1.0)
    else:
        close()
