"""`ForkSafeLock`: a lock that a forked process can take."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


class ForkSafeLock:
    """A lock of a module. A forked process has a new one, since another thread may have held it at the fork.

    It lasts as long as the process, so make it at the top of a module.

    Attributes:
        lock: the lock, which the thread that holds it may take again.

    Examples:
        >>> from arrayferry.adapting import ForkSafeLock
        >>> counting = ForkSafeLock()
        >>> with counting.lock:
        ...     pass
    """

    lock: AbstractContextManager[bool]

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.RLock()
