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
from distributed.core import Status
from distributed.worker import get_worker, secede
from distributed.worker_state_machine import FreeKeysEvent

from ._batch import map_arrays
from ._host import Host, pack

__all__ = ["Kept", "Seat", "stay"]


class Kept(NamedTuple):
    """A reference to an array in the memory of a worker, that a host there has made."""

    key: str
    host: str
    worker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class Seat:
    """Runs the calls of a host in a thread of its own.

    Dask has one thread for all actors of a worker. With one for each host, an environment that hangs does not
    stop the hosts of others.

    Args:
        name: the name of the host.

    Attributes:
        left: set when the host is not needed any more.
    """

    def __init__(self, name: str) -> None:
        self.left = threading.Event()
        self._name = name
        self._worker = get_worker()
        self._kept: dict[str, Any] = {}
        self._given: list[
            str
        ] = []  # the keys of arrays that nobody holds yet, as far as is known here
        self._host = Host(self._keep)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(
            target=_run, args=(self._calls,), name="arrayferry-host", daemon=True
        ).start()

    async def answer(self, request: bytes, claimed: bool | None = None) -> bytes | None:
        """Let the host answer.

        Args:
            request: the request.
            claimed: whether the arrays that were kept before are held by others now, or dropped. None if it is
                not decided.

        Returns:
            The answer, None if the worker is about to leave, so that the host must be made elsewhere.
        """
        self._settle(claimed)
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
        kept: Any = self._kept
        self._kept = {}
        if self._worker.status in _LEAVING:
            return None
        if kept and not self.left.is_set():
            self._given += kept
            self._worker.update_data(data=kept)
        return reply

    def _settle(self, claimed: bool | None) -> None:
        if claimed is None:
            return
        given, self._given = self._given, []
        if given and not claimed:
            name = f"arrayferry-{uuid.uuid4().hex}"
            self._worker.handle_stimulus(FreeKeysEvent(keys=given, stimulus_id=name))

    async def busy_with(self) -> int | None:
        """Return the environment that is being worked on."""
        return self._host.current

    async def stop(self, claimed: bool | None = None) -> None:
        """Close the environments and end the thread, when it has done what it does now."""
        self._settle(claimed)
        self.left.set()
        calls = self.__dict__.pop("_calls", None)
        if calls is not None:
            host = self._host
            calls.put(lambda: _close(host))
            calls.put(None)

    def _keep(self, tree: Any) -> Any:
        def keep(array: Any) -> Kept:
            key = f"arrayferry-{uuid.uuid4().hex}"
            self._kept[key] = array
            return Kept(
                key, self._name, self._worker.address, array.shape, array.dtype, array.nbytes
            )

        return map_arrays(keep, tree)

    def __del__(self) -> None:
        self.left.set()
        if "_calls" in self.__dict__:
            host = self._host
            self._calls.put(lambda: _close(host))  # `stop` was not called
            self._calls.put(None)


_LEAVING = {Status.closing, Status.closing_gracefully, Status.closed, Status.stopping}


def stay(name: str) -> None:
    """Run as long as a host is needed, as a task, so that an adaptive cluster does not close its worker."""
    seat = get_worker().state.actors.get(name)
    if seat is not None:
        left = seat.left
        del seat
        secede()  # others may use the thread
        left.wait()


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
