"""`Seat`: the Dask actor that carries a host."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from distributed.worker import get_worker

from ._batch import map_arrays
from ._host import Host, pack

__all__ = ["Kept", "Seat"]


class Kept(NamedTuple):
    """A reference to an array in the memory of a worker."""

    key: str
    worker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Seat:
    """Runs the calls of a host in a thread of its own.

    Dask has one thread for all actors of a worker. With one for each host, an environment that hangs does not
    stop the hosts of others.
    """

    def __init__(self) -> None:
        self._address = get_worker().address
        self._kept: dict[str, Any] = {}
        self._host = Host(self._keep)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(
            target=_run, args=(self._calls,), name="arrayferry-host", daemon=True
        ).start()

    async def answer(self, request: bytes) -> bytes:
        """Let the host answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        host, context = self._host, contextvars.copy_context()  # in which get_worker() works

        def work() -> None:
            reply = context.run(host.answer, request)
            try:
                loop.call_soon_threadsafe(_set, future, reply)
            except RuntimeError:  # the worker has closed meanwhile
                pass

        self._calls.put(work)
        reply = await future
        if self._kept:
            kept: Any = self._kept
            self._kept = {}
            get_worker().update_data(data=kept)
        return reply

    async def busy_with(self) -> int | None:
        """Return the environment that is being worked on."""
        return self._host.current

    async def stop(self) -> None:
        """Close the environments and end the thread, when it has done what it does now."""
        calls = self.__dict__.pop("_calls", None)
        if calls is not None:
            host = self._host
            calls.put(lambda: _close(host))
            calls.put(None)

    def _keep(self, tree: Any) -> Any:
        def keep(array: Any) -> Kept:
            key = f"arrayferry-{uuid.uuid4().hex}"
            self._kept[key] = array
            return Kept(key, self._address, array.shape, array.dtype, array.nbytes)

        return map_arrays(keep, tree)

    def __del__(self) -> None:
        if "_calls" in self.__dict__:
            host = self._host
            self._calls.put(lambda: _close(host))  # `stop` was not called
            self._calls.put(None)


def _run(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while True:
        work = calls.get()
        if work is None:
            return
        work()
        del work  # it refers to the host


def _close(host: Host) -> None:
    host.answer(pack(("close", ())))


def _set(future: asyncio.Future[bytes], reply: bytes) -> None:
    if not future.done():
        future.set_result(reply)
