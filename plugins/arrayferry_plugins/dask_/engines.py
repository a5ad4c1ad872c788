"""Engines run the tasks of a stream: in threads of this process, or on a cluster."""

from __future__ import annotations

import itertools
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from arrayferry import ConversionError, OptionError
from arrayferry.adapting import Threads

KEPT_BYTES = 128 * 1024 * 1024
"""Most bytes that the results of one kind may take together if they are kept for longer."""

ANSWER = 3.0
"""Seconds to try to reach a cluster that nobody named here."""

PATIENCE = 5.0
"""Seconds to try to reach a cluster at an address."""

REACH = 1.0
"""Seconds to try to reach a worker."""

NOT_KEPT: Any = object()
"""Stands for a result that was not kept."""


def check_client(client: Any, which: str) -> None:
    """Check that a client can compute blocks.

    Args:
        client: the client.
        which: its name in errors.
    """
    if not callable(getattr(client, "get", None)) or not hasattr(client, "scheduler"):
        raise OptionError(
            f"{which}{client!r:.80} is not a client of Dask",
            remedy="Pass a distributed.Client, or the address of a scheduler.",
        )
    if client.asynchronous:
        raise OptionError(
            f"{which} is asynchronous, and a stream is not",
            remedy="Iterate in another thread, as by asyncio.to_thread, or pass a client that was made without "
            "asynchronous=True.",
        )
    if client.status != "running":
        raise OptionError(
            f"{which} is not connected: its status is {client.status!r}", remedy="Make a new one."
        )


def connected(address: str, timeout: float = PATIENCE) -> Any:
    """Return a new client of the scheduler at an address."""
    import dask
    import distributed

    configured = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    try:
        return distributed.Client(address, set_as_default=False, timeout=min(configured, timeout))
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"no scheduler of Dask could be reached at {address!r} ({type(error).__name__}: {error})",
            remedy="Start one, or pass the address that it prints.",
        ) from error


def reconnected(address: str) -> Any:
    """Return a new client of the cluster that another process used, None with a warning if it is gone."""
    try:
        return connected(address, ANSWER)
    except ConversionError as error:
        warnings.warn(
            f"a stream that used the cluster at {address} before it was pickled is computed by threads of this "
            f"process: {error.reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _reachable(client: Any) -> bool | None:
    """Return whether blocks can be fetched from the workers themselves, and need not pass through the scheduler.

    Returns:
        None if it is not known.
    """
    for address in client.nthreads():
        protocol, _, place = address.rpartition("://")
        if protocol not in ("tcp", "tls"):
            return None
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH).close()
        except (OSError, ValueError):
            return False
        return True
    return None


class _StoppedError(Exception):
    """The stream was closed."""


class ThreadEngine:
    """Runs tasks in this process, or by another scheduler that the user has set.

    Args:
        get: the scheduler.
    """

    owned = False
    """Whether nobody else holds the memory of results."""

    def __init__(self, get: Any) -> None:
        import dask

        self._get = dask.threaded.get if get is None else get
        self._pool: Threads | None = None
        self._options: dict[str, Any] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._sizes: dict[Any, tuple[str, int]] = {}  # of the results that are kept
        self._totals = {"many": 0, "far": 0}
        if self._get is dask.threaded.get:
            pool = dask.config.get("pool", None)
            if pool is None:
                count = dask.config.get("num_workers", None) or dask.system.CPU_COUNT
                self._pool = pool = Threads(count, "arrayferry-stream")
            self._options = {"pool": pool}
        self._takes_callbacks = getattr(self._get, "func", self._get) in (
            dask.threaded.get,
            dask.local.get_sync,
            dask.local.get_async,
        )

    def run(
        self,
        tasks: dict[Any, Any],
        keys: list[Any],
        kept: Mapping[Any, str],
        keep: Callable[[Any, Any], None],
    ) -> list[Any]:
        """Return the values of keys, and keep the results that later steps need, if they are not too large."""

        def before(key: Any, *_: Any) -> None:
            if self._closed:
                raise _StoppedError

        def after(key: Any, value: Any, *_: Any) -> None:
            if key in kept and self._fits(key, kept[key], value):
                keep(key, value)

        options = self._options
        if self._takes_callbacks:
            options = {**options, "callbacks": [(None, None, before, after, None)]}
        return list(self._get(tasks, keys, **options))

    def _fits(self, key: Any, kind: str, value: Any) -> bool:
        """Return whether a result is kept."""
        from dask.sizeof import sizeof

        if kind == "close":
            return True
        size = sizeof(value)
        with self._lock:
            if size + self._totals[kind] > KEPT_BYTES:
                return False
            self._sizes[key] = kind, size
            self._totals[kind] += size
        return True

    def forget(self, key: Any) -> None:
        """Note that a result is no longer kept."""
        with self._lock:
            kind, size = self._sizes.pop(key, ("far", 0))
            self._totals[kind] -= size

    def as_task(self, result: Any) -> Any:
        """Return a task for a known result."""
        from dask.core import literal

        return (literal(result),)

    def abandon(self) -> None:
        """Let the process end without waiting for the tasks that run."""
        if self._pool is not None:
            self._pool.abandon()

    def close(self) -> None:
        """Start no more tasks."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class ClusterEngine:
    """Runs tasks on a cluster. Results are kept as futures.

    Args:
        client: the client.
        own: whether it is closed at the end.
    """

    def __init__(self, client: Any, own: bool) -> None:
        self._client = client
        self._own = own
        self._futures: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._closed = False
        self._lock = threading.Lock()
        self._direct: bool | None = client.direct_to_workers
        self.owned: bool = not client.scheduler.address.startswith("inproc")

    def run(
        self,
        tasks: dict[Any, Any],
        keys: list[Any],
        kept: Mapping[Any, str],
        keep: Callable[[Any, Any], None],
    ) -> list[Any]:
        """Return the values of keys, and keep the results that later steps need."""
        also = [key for key, kind in kept.items() if kind != "far"]
        futures = self._client.get(tasks, [*keys, *also], sync=False)
        with self._lock:  # `close` is called by another thread
            self._futures.update((id(future), future) for future in futures)
            closed = self._closed
        if closed:
            raise _StoppedError
        for key, future in zip(also, futures[len(keys) :], strict=True):
            keep(key, future)
        if self._direct is None:
            self._direct = _reachable(self._client)
        values = list(self._client.gather(futures[: len(keys)], direct=self._direct))
        many = [key for key in also if kept[key] == "many"]
        if many:
            sizes = self._client.nbytes(many, summary=False)
            limit = KEPT_BYTES * max(1, len(self._client.nthreads()))
            for key, total in zip(
                many, itertools.accumulate(sizes.get(key, 0) for key in many), strict=True
            ):
                if total > limit:
                    keep(key, NOT_KEPT)
        return values

    def forget(self, key: Any) -> None:
        """Note that a result is no longer kept."""

    def as_task(self, result: Any) -> Any:
        """Return a task for a known result."""
        return result

    def abandon(self) -> None:
        """Nothing runs here that could hang."""

    def close(self) -> None:
        """Cancel the tasks that were submitted."""
        with self._lock:
            self._closed = True
            references = self._futures.valuerefs()  # at once: some may vanish meanwhile
        for each in references:
            future = each()
            if future is not None:
                future.release()  # this cancels it if nobody else wants it
        if self._own:
            self._client.close()
