"""`HostActor`: the Dask actor that runs a host on a worker."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed.worker import get_worker, secede

from arrayferry_gym.distributed._workers.host import Host, Hosted
from arrayferry_gym.distributed._workers.messages import to_bytes
from arrayferry_gym.distributed._workers.observations import map_arrays

from .internals import actor_on_worker, free, is_leaving, keep


class RemoteArray(NamedTuple):
    """A reference to an array in the memory of a worker, which the actor `host` has made there."""

    key: str
    host: str
    worker: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


class HostActor:
    """Runs the calls of a host in a thread of its own.

    Dask has one thread for all actors of a worker. With one for each host, an environment that hangs does not
    stop the hosts of others.

    Args:
        name: the name of the actor.

    Attributes:
        stopped: set when the host is no longer needed.
    """

    def __init__(self, name: str) -> None:
        self.stopped = threading.Event()
        self._name = name
        self._worker = get_worker()
        self._kept: dict[str, Any] = {}  # the arrays that the current call has kept
        self._unclaimed: set[str] = set()  # the keys of kept arrays that the caller may not hold
        self._host = Host(self._keep)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(
            target=_run, args=(self._calls,), name="arrayferry-host", daemon=True
        ).start()

    async def answer(
        self, request: bytes, claimed: Sequence[str] = (), discards: bool = False
    ) -> bytes | None:
        """Let the host answer.

        Args:
            request: the request.
            claimed: the keys of arrays that were kept before, and that the caller holds now.
            discards: whether to free the others.

        Returns:
            The answer, None if the worker is about to leave, so that the host must be made elsewhere.
        """
        self._settle(claimed, discards)
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
        if is_leaving(self._worker):
            return None
        if kept and not self.stopped.is_set():
            self._unclaimed.update(kept)
            keep(self._worker, kept)
        return reply

    def _settle(self, claimed: Sequence[str], discards: bool) -> None:
        self._unclaimed.difference_update(claimed)
        if discards and self._unclaimed:
            keys, self._unclaimed = list(self._unclaimed), set()
            free(self._worker, keys)

    async def progress(self) -> tuple[int | None, int, str | None]:
        """Return the environment that is being worked on, the steps taken, and the place of the group worked on."""
        return self._host.current, self._host.steps, self._host.place

    async def stop(self, claimed: Sequence[str] = (), discards: bool = False) -> None:
        """Close the environments and end the thread, after the current call.

        Args:
            claimed: as for `answer`.
            discards: the same.
        """
        self._settle(claimed, discards)
        self._end()

    def _end(self) -> None:
        self.stopped.set()
        calls = self.__dict__.pop("_calls", None)
        if calls is not None:
            host = self._host
            calls.put(lambda: _close(host))
            calls.put(None)

    def _keep(self, tree: Any) -> Any:
        def kept(array: Any) -> RemoteArray:
            key = f"arrayferry-{uuid.uuid4().hex}"
            self._kept[key] = array
            return RemoteArray(
                key, self._name, self._worker.address, array.shape, array.dtype, array.nbytes
            )

        return map_arrays(kept, tree)

    def __del__(self) -> None:
        self._end()


def occupy_worker(name: str) -> None:
    """Run as a task while an actor is needed, so that an adaptive cluster does not close its worker."""
    actor = actor_on_worker(name)
    if actor is not None:
        stopped = actor.stopped
        del actor
        secede()  # others may use the thread
        stopped.wait()


def _run(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while True:
        work = calls.get()
        if work is None:
            return
        work()
        del work  # it refers to the host


def _close(host: Host) -> None:
    host.answer(to_bytes(functools.partial(Hosted.close)))


def _set(future: asyncio.Future[bytes], reply: bytes) -> None:
    if not future.done():
        future.set_result(reply)
