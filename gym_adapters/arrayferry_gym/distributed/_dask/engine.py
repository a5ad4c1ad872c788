"""`DaskEngine`: hosts as actors on a Dask cluster."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distributed.client import Client

import arrayferry as af
from arrayferry_gym.distributed._placing.checks import check_workers
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

T = TypeVar("T")

_STOP_PATIENCE = 1.0
"""Seconds that an actor has to confirm that it stops."""


@dataclass(eq=False)
class _ActorHandle:
    """An actor, and the connection to its worker.

    Attributes:
        address: the address of its worker.
        future: the future of the actor, None before it is submitted.
        occupying: the future of the task that keeps its worker from being closed, None if there is none.
        comm: the connection, None if calls go through the scheduler.
        lost: whether there is no actor, not yet or no longer.
        claimed: the keys of arrays that it has kept, and that are held here. It does not know of these yet.
        discards: whether it must free the other arrays that it has kept.
        lock: held while a call is in progress.
    """

    address: str
    future: Any = None
    occupying: Any = None
    comm: Any = None
    lost: bool = True
    claimed: list[str] = field(default_factory=list)
    discards: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class _Call:
    """A call to a host.

    Attributes:
        host: the host that is called.
        request: the request.
        task: sends the request, None until the call is started.
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
        arrayferry.OptionError: the client is asynchronous or closed, or is not a client, or another option is invalid.
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
        check_workers(workers, resources)
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

    def _sync(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        self._require_client()
        result: T = self._client.sync(function, *args)
        return result

    def _require_client(self) -> None:
        if self._client.status in ("closed", "closing"):
            raise SchedulerLostError(
                "the client is closed", remedy="Make a client, and the environments again."
            )

    def workers(self) -> list[str]:
        """Return the addresses of the workers that the scheduler knows."""
        return self._sync(self._living)

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

    def place(self, workers: Sequence[str], timeout: float) -> list[_ActorHandle | None]:
        """Make one host on each of the given workers."""
        return self._sync(self._place, workers, timeout)

    async def _place(self, workers: Sequence[str], timeout: float) -> list[_ActorHandle | None]:
        end = time.monotonic() + timeout
        hosts = [_ActorHandle(worker) for worker in workers]
        tasks = {
            worker: asyncio.ensure_future(
                self._start_hosts(worker, [host for host in hosts if host.address == worker])
            )
            for worker in dict.fromkeys(workers)
        }
        placed: list[_ActorHandle] = []
        try:
            pending = set(tasks.values())
            while pending and (left := end - time.monotonic()) > 0:
                _, pending = await asyncio.wait(
                    pending, timeout=min(left, 0.5), return_when=asyncio.FIRST_EXCEPTION
                )
                known = await self._living()
                for worker, task in tasks.items():
                    if worker not in known:  # Dask keeps trying to reach it
                        task.cancel()
                    elif task.done() and not task.cancelled():
                        task.result()
            placed = [host for host in hosts if not host.lost]
            if pending and not placed:
                late = next(worker for worker, task in tasks.items() if task in pending)
                what = "start a host" if late in self._checked else f"import {HostActor.__module__}"
                raise EnvTimeoutError(
                    f"the worker {late} did not {what} within {timeout:g} s",
                    remedy="It may be busy with other tasks. Wait for them, or pass a longer timeout.",
                    worker=late,
                )
            return [None if host.lost else host for host in hosts]
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            for host in hosts:
                if host not in placed:
                    self.release(host)

    async def _start_hosts(self, worker: str, hosts: Sequence[_ActorHandle]) -> None:
        """Start actors on a worker, and connect to them. Those that do not start stay `lost`."""
        if worker not in self._checked and not await self._check(worker):
            return
        for host in hosts:
            key = f"arrayferry-host-{uuid.uuid4().hex}"
            host.future = self._client.submit(
                HostActor, key, key=key, workers=[worker], actor=True, pure=False
            )
        while any(host.future.status == "pending" for host in hosts):
            await asyncio.sleep(0.002)
        for host in hosts:
            if host.future.status == "error":
                raise await host.future.exception()
            if host.future.status == "finished":
                await self._connect(host)

    async def _check(self, worker: str) -> bool:
        """Let a worker import what hosts need; otherwise an actor on it would stay pending forever. False if it is gone."""
        name = HostActor.__module__
        results = await self._client.run(
            importlib.import_module, name, workers=[worker], on_error="return"
        )
        result = results[worker]
        if isinstance(result, ImportError):
            module = result.name or getattr(result, "backend", "") or name
            raise WorkerSetupError(
                f"the worker {worker} cannot import {module}: {result}",
                remedy="Install the same packages there: pip install 'arrayferry[distributed,gym]'",
                worker=worker,
                module=module,
            ) from result
        if isinstance(result, BaseException):
            return False
        self._checked.add(worker)
        return True

    async def _connect(self, host: _ActorHandle) -> None:
        try:
            host.comm = await connect(self._client, host.address, PATIENCE)
        except OSError:
            if host.address not in await self._ask_scheduler():
                return
        if not self._own_cluster:
            host.occupying = self._client.submit(
                occupy_worker,
                host.future.key,
                key=f"stay-{uuid.uuid4().hex}",
                workers=[host.address],
                pure=False,
            )
        host.lost = False
        self._hosts.add(host)

    def call(self, host: _ActorHandle, request: bytes) -> _Call:
        """Prepare a call. `start` or `gather` sends it."""
        return _Call(host, request)

    def start(self, calls: Sequence[_Call]) -> None:
        """Send calls, without waiting for the answers."""
        self._require_client()
        self._client.loop.add_callback(self._tasks, calls)

    def _tasks(self, calls: Sequence[_Call]) -> list[asyncio.Task[bytes | None]]:
        """Return the tasks of calls, and start those that have not been started."""
        tasks = []
        for call in calls:
            if call.task is None:
                call.task = asyncio.ensure_future(self._ask(call.host, call.request))
            tasks.append(call.task)
        return tasks

    def wait(self, calls: Sequence[_Call], timeout: float, least: int) -> list[bool]:
        """Return which calls are answered, or never will be."""
        return self._sync(self._wait, calls, timeout, least)

    async def _wait(self, calls: Sequence[_Call], timeout: float, least: int) -> list[bool]:
        """Wait until some calls are answered, or for a time. Calls to machines that have vanished are given up."""
        tasks = self._tasks(calls)
        end = time.monotonic() + timeout
        pending = {task for task in tasks if not task.done()}
        enough = len(tasks) - least  # how many may remain
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
        return self._sync(self._gather, calls, timeout)

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
                answer = await ask(self._client, host, request, *_claims(host))
        except Exception:  # after any error, the host cannot be used
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
        return self._progress(host)[0]  # type: ignore[no-any-return]

    def steps_of(self, host: _ActorHandle) -> int | None:
        """Ask the worker, as `busy_with` does."""
        return self._progress(host)[1]  # type: ignore[no-any-return]

    def place_of(self, host: _ActorHandle) -> str | None:
        """Ask the worker, as `busy_with` does."""
        return self._progress(host)[2]  # type: ignore[no-any-return]

    def _progress(self, host: _ActorHandle) -> Any:
        async def ask_briefly() -> Any:
            try:
                return await asyncio.wait_for(ask_aside(self._client, host, "progress"), 1.0)
            except Exception:  # callers accept None
                return None, None, None

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
                stop = ask_aside(self._client, host, "stop", *_claims(host))
                await asyncio.wait_for(stop, _STOP_PATIENCE)
        except Exception:  # it is gone
            pass
        finally:
            for future in (host.occupying, host.future):
                if future is not None:
                    future.release()
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
    """Return, once, what a host must know about the arrays that it has kept: which are claimed, and whether to free others."""
    claims = [host.claimed, host.discards]
    host.claimed, host.discards = [], False
    return claims


def engine_for(
    engine: Engine | None,
    num_envs: int,
    *,
    client: Any,
    groups: int | None,
    min_workers: int,
    workers: Collection[str] | None,
    resources: Mapping[str, float] | None,
    set_as_default: bool = False,
) -> Engine:
    """Return the engine that a user has passed, or else Dask's.

    Args:
        engine: as given.
        num_envs: the number of environments.
        client: as for `DaskEngine`.
        groups: the number of hosts, None for one on each worker.
        min_workers: how many workers there must be.
        workers: as for `DaskEngine`.
        resources: the same.
        set_as_default: the same.

    Raises:
        arrayferry.OptionError: an engine is given together with options of Dask's engine.
    """
    if engine is None:
        n_workers = max(min(groups or os.cpu_count() or 1, num_envs), min_workers)
        return DaskEngine(
            client,
            n_workers=n_workers,
            set_as_default=set_as_default,
            workers=workers,
            resources=resources,
        )
    if client is not None:
        raise af.OptionError(
            "both client and engine are given", remedy="Pass DaskEngine(client) as the engine."
        )
    if workers is not None or resources is not None:
        raise af.OptionError(
            "workers= and resources= are options of Dask's engine, but another one is given",
            remedy="Pass them to the engine: DaskEngine(client, workers=..., resources=...).",
        )
    return engine
