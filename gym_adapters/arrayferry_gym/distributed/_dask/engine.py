"""`DaskEngine`: hosts as actors on a Dask cluster."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed.client import Client

from arrayferry_gym.distributed._placing.engine import Engine
from arrayferry_gym.distributed._placing.errors import (
    EnvTimeoutError,
    NoWorkerError,
    SchedulerLostError,
    WorkerSetupError,
)

from .actor import HostActor, occupy_worker
from .client import PATIENCE, open_client
from .internals import ask, ask_aside, connect, disconnect, workers_of
from .lazy import assembled

_STOP_PATIENCE = 1.0
"""Seconds that an actor has to answer that it stops."""


@dataclass(eq=False)
class _ActorHandle:
    """An actor, and the connection to its worker.

    Attributes:
        future: the future of the actor.
        occupying: the future of the task that keeps its worker from being closed, None if there is none.
        address: the address of its worker.
        comm: the connection, None if calls go through the scheduler.
        lost: whether the actor is gone.
        claimed: the keys of arrays that it has kept, and that are held here. It does not know of these yet.
        discards: whether it shall free the other arrays that it has kept.
        lock: held while a call is under way.
    """

    future: Any
    occupying: Any
    address: str
    comm: Any
    lost: bool = False
    claimed: list[str] = field(default_factory=list)
    discards: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class _Call:
    """A call.

    Attributes:
        host: the host that is called.
        request: what it is asked for.
        task: asks it, None as long as the call has not begun.
    """

    host: _ActorHandle
    request: bytes
    task: asyncio.Task[bytes | None] | None = None


class DaskEngine(Engine):
    """Places hosts on the workers of a Dask cluster, as actors.

    Calls go directly from this process to the worker, over one connection for each host. A lost connection is not
    reopened, so no call runs twice. If workers cannot be reached from here, calls go through the scheduler.

    Args:
        client: the client of a cluster, or the address of a scheduler. None uses the current client if there is one,
            and otherwise starts a cluster on this machine.
        n_workers: the number of workers of a cluster on this machine, None for one for each processor.
        set_as_default: whether a client that is created here becomes the current one.
        workers: the addresses or names of the workers that may run hosts, None for all.
        resources: Dask resources that such a worker must have, such as `{"GPU": 1}`.

    Raises:
        arrayferry.OptionError: the client is asynchronous or closed, or is not a client.
        NoWorkerError: the cluster on this machine cannot be started.
        SchedulerLostError: there is no scheduler at the address.
    """

    keeps_arrays = True

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        n_workers: int | None = None,
        set_as_default: bool = False,
        workers: Collection[str] | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self._client, self._owned, self._own_cluster = open_client(
            client, n_workers, set_as_default
        )
        self._workers = None if workers is None else frozenset(workers)
        self._resources = dict(resources or {})
        self._hosts: set[_ActorHandle] = set()
        self._checked: set[str] = set()
        self._dead: dict[str, float] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def client(self) -> Any:
        """The client of the cluster."""
        return self._client

    def _sync(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        self._require_client()
        return self._client.sync(function, *args)

    def _require_client(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise SchedulerLostError(
                "the client is closed", remedy="Make a client, and the environments again."
            )

    def workers(self) -> list[str]:
        """Return the addresses of the workers that the scheduler knows."""
        names: list[str] = self._sync(self._living)
        return names

    async def _living(self) -> list[str]:
        """Return the workers that may run hosts, in the thread that notes which have died."""
        known = await self._ask_scheduler(self._workers is not None or bool(self._resources))
        now = time.monotonic()
        self._dead = {name: at for name, at in self._dead.items() if now - at < PATIENCE}
        return [name for name in known if name not in self._dead]

    async def _ask_scheduler(self, fitting: bool = False) -> list[str]:
        """Return the workers of the cluster, all or those that may run hosts."""
        try:
            if fitting:
                described = await asyncio.wait_for(workers_of(self._client), PATIENCE)
                return [at for at, one in described.items() if self._fits(at, one)]
            return list(await asyncio.wait_for(self._client.nthreads(), PATIENCE))
        except (OSError, TimeoutError, AttributeError) as error:
            raise SchedulerLostError(
                f"the scheduler at {self._client.scheduler.address} cannot be reached",
                remedy="Start it again, make a new client, and make the environments again.",
            ) from error

    def _fits(self, address: str, worker: dict[str, Any]) -> bool:
        names = {address, worker.get("name"), str(worker.get("name"))}
        if self._workers is not None and not names & self._workers:
            return False
        has = worker.get("resources") or {}
        return all(has.get(name, 0) >= amount for name, amount in self._resources.items())

    def place(self, workers: Sequence[str], timeout: float) -> list[Any]:
        """Make one host on each of the given workers."""
        end = time.monotonic() + timeout
        self._sync(self._check, [name for name in workers if name not in self._checked], timeout)
        futures = {}
        for position, name in enumerate(workers):
            if name in self._checked:
                key = f"arrayferry-host-{uuid.uuid4().hex}"
                futures[position] = self._client.submit(
                    HostActor,
                    key,
                    key=key,
                    workers=[name],
                    actor=True,
                    pure=False,
                )
        placed: list[Any] = [None] * len(workers)
        try:
            while futures:
                patience = time.monotonic() + 0.2
                while time.monotonic() < patience and any(
                    future.status == "pending" for future in futures.values()
                ):
                    time.sleep(0.002)
                known = self.workers()
                for position, future in list(futures.items()):
                    if future.status == "finished":
                        placed[position] = self._sync(self._connect, future, workers[position])
                    elif future.status == "error" and workers[position] in known:
                        raise future.exception()
                    elif future.status == "pending" and workers[position] in known:
                        continue
                    del futures[position]
                if futures and time.monotonic() > end:
                    if any(host is not None for host in placed):
                        break
                    late = str(workers[next(iter(futures))])
                    raise EnvTimeoutError(
                        f"the worker {late} did not start a host within {timeout:g} s",
                        remedy="It may be busy with other tasks. Wait for them, or pass a longer timeout.",
                        worker=late,
                    )
        except BaseException:
            for host in placed:
                if host is not None:
                    self.release(host)
            raise
        self._hosts.update(host for host in placed if host is not None)
        return placed

    async def _check(self, workers: list[str], timeout: float) -> None:
        """Let workers import what hosts need. If a worker cannot, an actor on it would stay pending forever."""
        name = HostActor.__module__
        asked = {
            worker: asyncio.ensure_future(
                self._client.run(importlib.import_module, name, workers=[worker], on_error="return")
            )
            for worker in workers
        }
        try:
            await self._await_imports(asked, name, timeout)
        finally:
            for task in asked.values():
                task.cancel()
        for worker, task in asked.items():
            result = task.result()[worker]
            if isinstance(result, ImportError):
                module = result.name or getattr(result, "backend", "") or name
                raise WorkerSetupError(
                    f"the worker {worker} cannot import {module}: {result}",
                    remedy="Install the same packages there: pip install 'arrayferry[distributed,gym]'",
                    worker=worker,
                    module=module,
                ) from result
            if not isinstance(result, BaseException):
                self._checked.add(worker)

    async def _await_imports(
        self, asked: dict[str, asyncio.Future[Any]], name: str, timeout: float
    ) -> None:
        """Wait for all workers, but for those that are gone, which are dropped: Dask keeps trying to reach them."""
        end = time.monotonic() + timeout
        while late := [worker for worker, task in asked.items() if not task.done()]:
            await asyncio.wait([asked[worker] for worker in late], timeout=0.5)
            late = [worker for worker in late if not asked[worker].done()]
            if not late:
                return
            known = await self._ask_scheduler()
            for worker in late:
                if worker not in known:
                    asked.pop(worker).cancel()
                elif time.monotonic() > end:
                    raise EnvTimeoutError(
                        f"the worker {worker} did not import {name} within {timeout:g} s",
                        remedy="Pass a longer timeout.",
                        worker=worker,
                    )

    async def _connect(self, future: Any, address: str) -> _ActorHandle | None:
        try:
            comm = await connect(self._client, address, PATIENCE)
        except OSError:
            known = await self._ask_scheduler()
            if address not in known:
                future.release()
                return None
            comm = None  # calls go through the scheduler
        occupying = None
        if not self._own_cluster:
            occupying = self._client.submit(
                occupy_worker,
                future.key,
                key=f"stay-{uuid.uuid4().hex}",
                workers=[address],
                pure=False,
            )
        return _ActorHandle(future, occupying, address, comm)

    def call(self, host: _ActorHandle, request: bytes) -> _Call:
        """Prepare a call. `start` or `gather` sends it."""
        return _Call(host, request)

    def start(self, calls: Sequence[_Call]) -> None:
        """Send calls, without waiting for the answers."""
        self._require_client()
        self._client.loop.add_callback(self._tasks, calls)

    def _tasks(self, calls: Sequence[_Call]) -> list[asyncio.Task[bytes | None]]:
        """Return the tasks of calls, of which those that have not begun begin now."""
        tasks = []
        for call in calls:
            if call.task is None:
                call.task = asyncio.ensure_future(self._ask(call.host, call.request))
            tasks.append(call.task)
        return tasks

    def wait(self, calls: Sequence[_Call], timeout: float, least: int) -> list[bool]:
        """Return which calls are answered, or never will be."""
        answered: list[bool] = self._sync(self._wait, calls, timeout, least)
        return answered

    async def _wait(self, calls: Sequence[_Call], timeout: float, least: int) -> list[bool]:
        """Wait until some calls are answered, or for a time. Those to machines that have vanished are given up."""
        tasks = self._tasks(calls)
        end = time.monotonic() + timeout
        pending = {task for task in tasks if not task.done()}
        enough = len(tasks) - least  # so many may be left
        when = asyncio.ALL_COMPLETED if enough == 0 else asyncio.FIRST_COMPLETED
        while len(pending) > enough and (left := end - time.monotonic()) > 0:
            _, pending = await asyncio.wait(pending, timeout=min(left, 0.5), return_when=when)
            for call in calls:
                # the scheduler knows of machines that vanished without closing their connections
                gone = call.host.future.status not in ("finished", "pending")
                if gone and call.task in pending:
                    self._lose(call.host)
                    call.task.cancel()
        return [task.done() for task in tasks]

    def gather(self, calls: Sequence[_Call], timeout: float) -> list[bytes | None]:
        """Send the calls to all hosts in parallel, and wait for the answers."""
        answers: list[bytes | None] = self._sync(self._gather, calls, timeout)
        return answers

    async def _gather(self, calls: Sequence[_Call], timeout: float) -> list[bytes | None]:
        tasks = self._tasks(calls)
        if not all(await self._wait(calls, timeout, len(calls))):
            known = await self._ask_scheduler()
            for call, task in zip(calls, tasks, strict=True):
                if not task.done():
                    task.cancel()
                    call.host.discards = True  # its answer comes too late
                    if call.host.address not in known:
                        self._lose(call.host)
        await asyncio.wait(tasks)
        return [None if task.cancelled() else task.result() for task in tasks]

    async def _ask(self, host: _ActorHandle, request: bytes) -> bytes | None:
        try:
            async with host.lock:
                if host.lost:
                    return None
                key, claims = host.future.key, _claims(host)
                answer = await ask(self._client, host.comm, host.address, key, request, *claims)
        except Exception:  # whatever the error, the host is of no more use
            answer = None
        if answer is None:
            self._lose(host)
        return answer

    def _lose(self, host: _ActorHandle) -> None:
        host.lost = True
        self._dead[host.address] = time.monotonic()
        self._checked.discard(host.address)

    def lost(self, host: _ActorHandle) -> bool:
        """Return whether the connection to the worker has broken, or the actor is gone."""
        return host.lost

    def busy_with(self, host: _ActorHandle) -> int | None:
        """Ask the worker, whose event loop is not busy with the environments."""
        return self._asked(host, "busy_with")  # type: ignore[no-any-return]

    def steps_of(self, host: _ActorHandle) -> int | None:
        """Ask the worker, as `busy_with` does."""
        return self._asked(host, "steps")  # type: ignore[no-any-return]

    def place_of(self, host: _ActorHandle) -> str | None:
        """Ask the worker, as `busy_with` does."""
        return self._asked(host, "place")  # type: ignore[no-any-return]

    def _asked(self, host: _ActorHandle, method: str) -> Any:
        async def ask_briefly() -> Any:
            asked = ask_aside(self._client, host.address, host.future.key, method)
            try:
                return await asyncio.wait_for(asked, 1.0)
            except Exception:  # the caller can do without
                return None

        return self._sync(ask_briefly)

    def release(self, host: _ActorHandle) -> None:
        """Make the scheduler forget an actor."""
        self._hosts.discard(host)
        host.discards = True
        asked = not host.lost and not self._own_cluster  # processes that end anyway are not asked
        self._client.loop.add_callback(self._start_stopping, host, asked)

    def _start_stopping(self, host: _ActorHandle, asked: bool) -> None:
        task = asyncio.ensure_future(self._stop(host, asked))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop(self, host: _ActorHandle, asked: bool) -> None:
        try:
            if asked:
                key, claims = host.future.key, _claims(host)
                stop = ask_aside(self._client, host.address, key, "stop", *claims)
                await asyncio.wait_for(stop, _STOP_PATIENCE)
        except Exception:  # it is gone
            pass
        finally:
            if host.occupying is not None:
                host.occupying.release()
            host.future.release()
            if host.comm is not None:
                disconnect(host.comm)

    async def _await_stops(self) -> None:
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=_STOP_PATIENCE)

    def discard(self) -> None:
        """With the next call, make hosts drop the trees that they keep, unless they were assembled."""
        for host in list(self._hosts):  # other threads may use the engine
            host.discards = True

    def assemble(self, references: Sequence[Any]) -> list[Any]:
        """Register the arrays that workers have kept with the scheduler, and return Dask arrays of them."""
        self._require_client()
        try:
            trees, claimed = assembled(self._client, references)
        except Exception as error:
            known = self._sync(self._ask_scheduler)
            gone = [host for host in list(self._hosts) if host.address not in known]
            if not gone:
                raise
            for host in gone:
                self._lose(host)
            names = ", ".join(sorted({host.address for host in gone}))
            raise NoWorkerError(
                f"the worker {names} is gone, and with it the arrays that it has kept",
                worker=names,
            ) from error
        for host in list(self._hosts):
            host.claimed += claimed.get(host.future.key, ())
        return trees

    def close(self) -> None:
        """Release all hosts, and close the client and the cluster if they were created here."""
        if self._client.asynchronous:  # garbage was collected in the thread of the client
            threading.Thread(target=self.close, name="arrayferry-close").start()
            return
        for host in list(self._hosts):
            self.release(host)
        # Whoever closes the client next would take the actors away before they have stopped.
        if self._client.status == "running":
            self._client.sync(self._await_stops)
        owned, self._owned = self._owned, []
        for part in owned:
            try:
                part.close(timeout=PATIENCE)
            except Exception:  # it is gone already
                pass


def _claims(host: _ActorHandle) -> list[Any]:
    """Return what a host is told of the arrays that it has kept, once."""
    claims = [host.claimed, host.discards]
    host.claimed, host.discards = [], False
    return claims
