"""Closes objects with threads of their own, such as clients of Dask, before the garbage collector would close them.

The garbage collector may run between any two lines, also while its thread holds a lock that closing needs. The thread
would then wait for itself forever.
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
        with contextlib.suppress(Exception):  # the error of the constructor is raised
            instance.close()
        raise
    return instance


def close_in_thread(close: Callable[[], object]) -> None:
    """Call `close` in another thread, and wait at most a second. If the process is ending, call it in this thread."""
    if threading.main_thread().is_alive():
        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(1.0)
    else:
        close()
