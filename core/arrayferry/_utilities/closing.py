"""Objects with threads of their own, such as clients of Dask, that are closed where no garbage is collected.

The garbage collector runs between any two lines, also where its thread holds a lock that closing needs: then the thread
waits for itself for ever.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


def construct_or_close(cls: type[Any], *args: Any, **options: Any) -> Any:
    """Return a new object of a class. If its constructor fails, close it at once."""
    instance: Any = object.__new__(cls)
    try:
        instance.__init__(*args, **options)
    except BaseException:
        with contextlib.suppress(Exception):  # only the first error is raised
            instance.close()
        raise
    return instance


def close_in_thread(close: Callable[[], object]) -> None:
    """Close something in another thread, and wait for it at most a second. If the process is ending, close it in this one."""
    if threading.main_thread().is_alive():
        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(1.0)
    else:
        close()
