"""`Threads`: a pool of threads, some of which may hang."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

from arrayferry._cache import existing


class Threads(Executor):
    """A pool of threads. At exit, the process waits for running calls, but not after `abandon`.

    With Python's own pools, a process with a thread that hangs never ends.

    Args:
        count: the maximum number of threads.
        name: the prefix of their names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._max_workers = count  # where Dask looks for it
        self._name = name
        self._state = _State()
        _states[id(self._state)] = self._state

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread.

        Raises:
            RuntimeError: the pool was shut down.
        """
        state, future = self._state, Future[Any]()
        with state.lock:
            if state.closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            state.calls.put((future, partial(fn, *args, **kwargs)))
            if not state.idle.acquire(blocking=False) and len(state.threads) < self._max_workers:
                name = f"{self._name}_{len(state.threads)}"
                thread = threading.Thread(target=_run, args=(state,), name=name, daemon=True)
                thread.start()
                state.threads.append(thread)
        return future

    def abandon(self) -> None:
        """Note that a call hangs, so that the process does not wait for the threads at exit."""
        self._state.abandoned = True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after their current calls if `cancel_futures` is True, after all submitted calls if not."""
        self._state.close(cancel=cancel_futures)
        if wait:
            for thread in self._state.threads:
                thread.join()

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None:
            state.close(cancel=False)


class _State:
    """The state that the threads of a pool share. They do not refer to the pool, so those of an unused pool end."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start again without threads or calls, as in a forked process, which has none of its parent's."""
        self.lock = threading.Lock()
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.idle = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []
        self.closed = False
        self.abandoned = False

    def close(self, *, cancel: bool) -> None:
        with self.lock:
            first, self.closed = not self.closed, True
        if cancel:  # calls that no thread has started
            with suppress(queue.Empty):
                while True:
                    call = self.calls.get_nowait()
                    if call is not None:
                        call[0].cancel()
        if first or cancel:
            for _ in self.threads:
                self.calls.put(None)


def _run(state: _State) -> None:
    while True:
        try:
            call = state.calls.get_nowait()
        except queue.Empty:
            state.idle.release()
            call = state.calls.get()
        if call is None:
            return
        future, function = call
        if future.set_running_or_notify_cancel():
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del call, future, function  # they may be large


_states: weakref.WeakValueDictionary[int, _State] = weakref.WeakValueDictionary()


@atexit.register
def _end() -> None:
    """Wait for running calls: a thread that is inside another library when the process ends may crash it."""
    for state in existing(_states):
        state.close(cancel=True)
        for thread in state.threads:
            if not state.abandoned:
                thread.join()


def _after_fork() -> None:
    for state in existing(_states):
        state.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
