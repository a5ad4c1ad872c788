"""`Threads`: a pool of threads, some of which may hang."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from arrayferry._utilities.cache import existing


class Threads(Executor):
    """A pool of threads. When the process ends, it waits for running calls, unless `abandon` was called.

    A process with a hanging thread in a pool of `concurrent.futures` would not end. A thread ends when no calls are
    left.

    Args:
        count: the maximum number of threads.
        name: the name of each thread.
    """

    def __init__(self, count: int, name: str) -> None:
        self._max_workers = count  # Dask reads this attribute
        self._name = name
        self._closed = self._abandoned = False
        self._renew()
        _pools[id(self)] = self

    def _renew(self) -> None:
        """Start with no threads and no calls. A forked process needs this, since no thread of its parent runs in it."""
        self._lock = threading.Lock()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread, and return a future of the result.

        Raises:
            RuntimeError: the pool was shut down.
        """
        future = Future[Any]()
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append((future, partial(fn, *args, **kwargs)))
            if len(self._threads) < self._max_workers:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # the thread waits for the lock, so it is in the set before its first call
                self._threads.add(thread)
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._threads.discard(threading.current_thread())
                    return
                future, function = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, function  # free the arguments and the result, which may be large

    def abandon(self) -> None:
        """Let the process end without waiting for the threads of this pool. Call this if a call hangs."""
        self._abandoned = True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.

        If `wait` is True, wait for all threads. If `cancel_futures` is True, drop the calls that no thread has begun.
        """
        with self._lock:
            self._closed = True
            calls = list(self._calls) if cancel_futures else []
            threads = list(self._threads)
        for future, _ in calls:
            future.cancel()
        for thread in threads if wait else ():
            thread.join()


_pools: weakref.WeakValueDictionary[int, Threads] = weakref.WeakValueDictionary()


@atexit.register
def _end() -> None:
    """Wait for running calls, since the process may crash if it ends while a thread runs code of another library."""
    for pool in existing(_pools):
        pool.shutdown(wait=not pool._abandoned, cancel_futures=True)


def _after_fork() -> None:
    for pool in existing(_pools):
        pool._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
