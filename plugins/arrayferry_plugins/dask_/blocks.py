"""How streams compute the chunks of Dask arrays along an axis, one after another.

A client of a cluster or threads of this process compute the chunks. In another process, a pickled stream connects to
its cluster again.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

from arrayferry import ConversionError, OptionError
from arrayferry._utilities.closing import close_in_thread, construct_or_close
from arrayferry_streams import Blocks, Reader, Streaming

from .computing import futures_of, owner_of, persisted, scheduler_of, without_planning
from .readers import ClusterReader, ThreadReader

PING = 3.0
"""The maximum number of seconds to wait for an answer of a client, or of a scheduler whose address is a `_Formerly`."""

CONNECT = 5.0
"""The maximum number of seconds to try to reach a cluster at an address that the user passed."""

FILES = ("tls_ca_file", "tls_client_cert")
"""The settings of a connection with the names of files that TLS needs."""

SETTINGS = (*FILES, "tls_client_key", "tls_ciphers", "tls_min_version", "tls_max_version")
"""The settings of a connection that are pickled. If one of them has the content of a file, none is pickled."""

_connecting: dict[int, threading.RLock] = {}
"""A lock for each process id. A forked process needs a new lock, since the lock of its parent may be locked forever."""


class Clients:
    """Finds the client that computes the blocks of some arrays.

    Args:
        xs: the arrays.
        client: a client, or the address of a scheduler. None for the current client, or for threads if there is no
            current client.
    """

    def __init__(self, xs: Sequence[Any], client: Any) -> None:
        if client is not None and not isinstance(client, str):
            _check(client, "client=")
        self._xs = xs
        self._requested = client
        self._process = os.getpid()
        self._connections: dict[tuple[int, str], Any] = {}  # clients, by process id and address

    def find(self, futures: Sequence[Any]) -> tuple[Any, Any]:
        """Return the client or the scheduler that computes the arrays.

        Args:
            futures: the futures in the graphs of the arrays. Only the cluster that has the results of the futures can
                compute the arrays.

        Returns:
            The client of a cluster and None, or None and the function of another scheduler, such as
            `dask.multiprocessing.get`. For the default threads, None and None.
        """
        client, scheduler, client_text = self._requested, None, "client="
        if client is None or isinstance(client, _Formerly):
            client, client_text = owner_of(futures), "the current client"
            if client is None and not _in_task():
                scheduler = _current_scheduler(self._xs)
                client = (
                    self._requested if scheduler is None else getattr(scheduler, "__self__", None)
                )
        if client is not None and not isinstance(client, str) and not self._answers(client):
            client = _Place.of(client)
        if isinstance(client, str):
            client = self._connected(client)
        if client is not None:
            _check(client, client_text)
        return client, scheduler

    def portable(self) -> Any:
        """Return the address of the cluster for another process, or None if another process cannot reach it."""
        requested = self._requested
        if requested is not None:
            return requested if isinstance(requested, _Place) else _Place.of(requested)
        client = _current_client(self._xs)
        is_local = client is None or client.scheduler.address.startswith("inproc")
        return None if is_local else _Formerly.of(client)

    def _answers(self, client: Any) -> bool:
        """Return whether a client works in this process. In a forked process, the client's threads are missing."""
        if self._process != os.getpid() or self._connections:
            return False
        if client.asynchronous:  # no test: _check() raises an error for an asynchronous client
            return True
        try:
            client.sync(asyncio.sleep, 0, callback_timeout=PING)
        except TimeoutError:
            return False
        except Exception:  # the client is closed: _check() raises an error for a closed client
            pass
        return True

    def _connected(self, address: str) -> Any:
        """Return a client of the scheduler at an address. The client is closed when this object is deleted.

        Returns:
            The client. None, with a warning, if the address is a `_Formerly` and the cluster no longer answers.
        """
        process_id = os.getpid()
        with _connecting.setdefault(process_id, threading.RLock()):
            connection_key = process_id, address
            client = self._connections.get(connection_key)
            is_lost = client is not None and client.status != "running"
            if is_lost or connection_key not in self._connections:
                client = _connect(address)
                self._connections = {connection_key: client}
                if client is not None:
                    weakref.finalize(self, _close, client, process_id)
            return client


class _Place(str):
    """The address of a scheduler, with the settings of connections to it.

    Attributes:
        security: a `distributed.Security`. After unpickling, a dict of the `SETTINGS`, which is empty if a key or
            certificate was in memory instead of in a file.
    """

    security: Any = None

    @classmethod
    def of(cls, client: Any) -> _Place:
        """Return the address of a client's scheduler with its settings, or a given address with default settings."""
        import distributed

        address = cls(client if isinstance(client, str) else client.scheduler.address)
        address.security = getattr(client, "security", None) or distributed.Security()
        return address

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.security
        if not isinstance(settings, dict):
            settings = {name: getattr(settings, name, None) for name in SETTINGS}
        in_memory = any("\n" in str(setting) for setting in settings.values())
        return type(self), (str(self),), {"security": {} if in_memory else settings}


class _Formerly(_Place):
    """The address of the cluster whose client was current when a stream was pickled.

    The user did not pass the cluster to the stream, so threads can compute it if the cluster no longer answers.
    """


def _current_scheduler(xs: Sequence[Any]) -> Any:
    """Return the scheduler that `x.compute()` would use, or None for the default threads."""
    import dask

    get = scheduler_of(xs)
    return None if get is dask.threaded.get and not dask.config.get("scheduler", None) else get


def _current_client(xs: Sequence[Any]) -> Any:
    """Return the client that `x.compute()` would use, or None if it would use no cluster."""
    try:
        client = getattr(_current_scheduler(xs), "__self__", None)
    except ConversionError:  # raised if the current client is asynchronous
        import distributed

        client = distributed.default_client()
    return client if hasattr(client, "scheduler") else None


def _in_task(*, actor: bool = True) -> bool:
    """Return whether this code runs in a task of a cluster. A task that waits for other tasks may wait forever.

    Args:
        actor: whether methods of actors count as tasks. They may wait, since they do not run in the threads of tasks.
    """
    worker_module = sys.modules.get("distributed.worker")
    # while another thread imports the module, it may lack `thread_state`
    state = getattr(worker_module, "thread_state", None)
    return bool(getattr(state, "key", None)) and (actor or not getattr(state, "actor", False))


def _leave_pool() -> None:
    """If this is a task of a cluster, let the worker run another task too, such as a task that this one waits for."""
    if _in_task(actor=False):
        import distributed

        with suppress(KeyError):  # the task has called secede() before
            distributed.secede()


def _check(client: Any, which: str) -> None:
    """Check that a client can compute blocks.

    Args:
        client: the client.
        which: the words for the client in errors.
    """
    if not callable(getattr(client, "get", None)) or not hasattr(client, "scheduler"):
        raise OptionError(
            f"{which}{client!r:.80} is not a client of Dask",
            remedy="Pass a distributed.Client, or the address of a scheduler.",
        )
    if client.asynchronous:
        raise OptionError(
            f"{which} is asynchronous, but a stream needs a synchronous client",
            remedy="Iterate in another thread, such as by asyncio.to_thread, or pass a client that was made without "
            "asynchronous=True.",
        )
    if client.status != "running":
        raise OptionError(
            f"{which} is not connected: its status is {client.status!r}",
            remedy="Make a new client.",
        )


def _connect(address: str) -> Any:
    """Return a new client of the scheduler at an address. If a `_Formerly` does not answer, warn, and return None."""
    import dask
    import distributed

    is_named, security = not isinstance(address, _Formerly), getattr(address, "security", None)
    if isinstance(security, dict):
        files = [str(security.get(name)) for name in FILES]
        # if one of these files is missing, let Dask use the settings in its configuration
        security = security if all(map(os.path.isfile, files)) else None
    dask_timeout = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    timeout = min(dask_timeout, CONNECT if is_named else PING)
    try:
        return construct_or_close(
            distributed.Client, address, set_as_default=False, timeout=timeout, security=security
        )
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = f"no scheduler of Dask could be reached at {address!r} ({type(error).__name__}: {error})"
        remedy = "Start a scheduler, or pass the address that it prints."
        if isinstance(error, TypeError):  # the address needs TLS, but there are no certificates
            remedy = (
                "An address has no certificates, and a pickle has the names of files, but no keys. Pass names of files "
                "to distributed.Security, or set distributed.comm.tls in Dask's configuration."
            )
        if is_named or isinstance(error, TypeError):
            raise ConversionError(reason, remedy=remedy) from error
    message = f"a pickled stream used the cluster at {address}, but is now computed by threads of this process: {reason}"
    warnings.warn(message, RuntimeWarning, stacklevel=2)
    return None


def _close(client: Any, process: int) -> None:
    """Close a client, unless this process is a fork of the process that made it."""
    if process == os.getpid():
        close_in_thread(client.close)


class DaskBlocks(Blocks):
    """The chunks of Dask arrays along an axis. All arrays share one graph.

    Args:
        xs: the arrays.
        axis: the axis.
        client: the `distributed.Client` that computes the chunks, or the address of a scheduler. None for the current
            client, or for threads if there is no current client.
    """

    uses_client = True

    def __init__(self, xs: Sequence[Any], axis: int, client: Any) -> None:
        from dask.highlevelgraph import HighLevelGraph

        for x in xs:
            if any(length != length for length in x.chunks[axis]):
                raise ConversionError(
                    "a Dask array with chunks of unknown sizes cannot be read block by block",
                    remedy="Call x.compute_chunk_sizes() first.",
                )
        self._optimize = xs[0].__dask_optimize__
        xs = [*map(without_planning, xs)]
        self._clients = Clients(xs, client)
        self._graph = HighLevelGraph.merge(*(x.__dask_graph__() for x in xs))
        self._futures = futures_of(self._graph)
        self._persisted = persisted(self._graph)
        self._keys = [_along(x.__dask_keys__(), axis) for x in xs]
        self.lengths: Sequence[Sequence[int]] = [x.chunks[axis] for x in xs]

    def read(self, array: int, block: int) -> Any:
        with closing(self.open([[(array, block)]])) as reader:
            return reader.read(0)[0]

    def portable_client(self) -> Any:
        return self._clients.portable()

    def open(self, steps: Sequence[Any]) -> Reader:
        wanted_keys = [[self._keys[array][block] for array, block in step] for step in steps]
        # add persisted results again: the optimization may remove some that tasks still need
        graph = {**self._persisted, **self._optimize(self._graph, wanted_keys)}
        client, scheduler = self._clients.find(self._futures)
        if client is None:
            return ThreadReader(graph, wanted_keys, scheduler)
        _leave_pool()
        return ClusterReader(graph, wanted_keys, client)


def _along(keys: Any, axis: int) -> list[Any]:
    """Return the keys of the chunks of each block along an axis, in lists that are nested along the other axes."""
    if axis == 0:
        return [[key] for key in keys]
    return [list(block) for block in zip(*(_along(inner, axis - 1) for inner in keys), strict=True)]


class DaskStreaming(Streaming):
    """Reads Dask arrays chunk by chunk."""

    name = "dask"

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> DaskBlocks:
        return DaskBlocks(xs, axis, client)
