"""`Closing`: environments on workers are closed once, in the process that made them."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

from .engine import Engine
from .placement import Placement

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_of_others: list[Closing] = []
"""What belongs to the process that this one was forked from. Connections that are dropped here would break there."""


@atexit.register  # before distributed closes its clients, since it was imported earlier
def _close_all() -> None:
    for envs in list(_open):
        envs.close()


def close_at_exit(envs: Any) -> None:
    """Close a vector environment at the end of the process, if it still exists then."""
    _open.add(envs)


class Closing:
    """Knows what is to be closed with a vector environment.

    Args:
        placement: the hosts.
        engine: the engine.
        own_engine: whether the engine was made for this vector environment, and is closed with it.
    """

    def __init__(self, placement: Placement, engine: Engine, own_engine: bool) -> None:
        self._placement = placement
        self._engine = engine
        self._own_engine = own_engine
        self._process = os.getpid()

    def is_of_this_process(self) -> bool:
        """Tell whether the hosts belong to this process, and not to one that this one was forked from."""
        return self._process == os.getpid()

    def close(self) -> None:
        """Close the hosts, and the engine if it is their own. It does not wait for those that hang."""
        if not self.is_of_this_process():
            _of_others.append(self)
            return
        try:
            self._engine.discard()
            self._placement.close()
        except Exception:  # the cluster is gone
            pass
        finally:
            if self._own_engine:
                self._engine.close()

    def close_in_thread(self) -> None:
        """Close in another thread, since garbage may be collected in that of the engine."""
        if not self.is_of_this_process():
            _of_others.append(self)
            return
        try:
            threading.Thread(target=self.close).start()
        except RuntimeError:  # the interpreter ends
            pass
