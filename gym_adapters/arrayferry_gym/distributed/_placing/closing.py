"""`ClosedOnce`: objects with environments on workers are closed once, in the process that made them."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from typing import Any, NoReturn

from .errors import NotReadyError
from .pool import HostPool

_open: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_inherited: list[Closing] = []
"""Objects of the process that this one was forked from. Dropping their connections here would break them there."""


@atexit.register  # before distributed closes its clients, since it was imported earlier
def _close_all() -> None:
    for each in _open.valuerefs():  # at once: some may vanish meanwhile
        envs = each()
        if envs is not None:
            envs.close()


class ClosedOnce:
    """An object with environments on workers. It is closed by its owner, or at the end of the process.

    Attributes:
        closed: whether it is closed or not opened yet.
    """

    closed: bool = True
    _closing: Closing

    def _opened(self, pool: HostPool, own_engine: bool) -> None:
        """Note the hosts and the engine to close. The arguments are as for `Closing`."""
        self._closing = Closing(pool, own_engine)
        self.closed = False
        _open[id(self)] = self

    def _require_open(self) -> None:
        name = type(self).__name__
        if self.closed:
            raise NotReadyError(f"this {name} is closed", remedy="Make another one.")
        if not self._closing.is_of_this_process():
            raise NotReadyError(
                f"this {name} belongs to the process that this one was forked from",
                remedy="Make another one in this process, with a client of its own.",
            )

    def __del__(self) -> None:
        if not self.closed:
            self.closed = True
            self._closing.close(in_thread=True)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled, since its environments live in other processes. "
            "Make it where it is used, with the same arguments."
        )


class Closing:
    """Closes hosts and their engine. It does not refer to its owner, which may be gone.

    Args:
        pool: the hosts.
        own_engine: whether the engine was made for the owner, and is closed with it.
    """

    def __init__(self, pool: HostPool, own_engine: bool) -> None:
        self._pool = pool
        self._own_engine = own_engine
        self._process = os.getpid()

    def is_of_this_process(self) -> bool:
        """Tell whether the hosts belong to this process, and not to one that this one was forked from."""
        return self._process == os.getpid()

    def close(self, *, in_thread: bool = False) -> None:
        """Close the hosts, and the engine if it is their own. It does not wait for those that hang.

        Args:
            in_thread: whether another thread does it, since garbage may be collected in that of the engine.
        """
        if not self.is_of_this_process():
            _inherited.append(self)
        elif in_thread:
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                threading.Thread(target=self.close).start()
        else:
            engine = self._pool.engine
            try:
                engine.discard()
                self._pool.close()
            except Exception:  # the cluster is gone
                pass
            finally:
                if self._own_engine:
                    engine.close()
