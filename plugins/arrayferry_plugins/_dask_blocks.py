"""Streams of Dask arrays: the chunks along an axis are computed one after another.

All arrays of a stream share one graph, which is optimized once. A result that several steps need is kept
from the first to the last of them: if they are close together, as with overlaps and cumulative sums, if many
steps need it, as with a mean or a model, or if it is needed once more much later, as the chunks of which the
mean is subtracted. Of the last two kinds, as much is kept as fits into a limit, since a stream must not take as
much memory as the whole array. The rest is computed again.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from arrayferry import Blocks, ConversionError, OptionError, Reader, backend_of

from .dask_ import is_future, persisted

__all__ = ["DaskBlocks"]

CLOSE = 2
"""How many steps later a result is needed at most to be kept whatever its size is."""
KEPT_BYTES = 128 * 1024 * 1024
"""Size of the results of one kind together that are kept for longer."""

ANSWER = 3.0
"""Seconds to wait for a sign of life of a client in this process."""

REACH = 1.0
"""Seconds to try to reach a worker."""

_AGAIN: Any = object()
"""Stands for a result that was not kept."""


class DaskBlocks(Blocks):
    """The chunks of Dask arrays along an axis.

    Args:
        xs: the arrays.
        axis: the axis.
        client: computes them: a `distributed.Client`, or the address of a scheduler. None for the current
            client, or threads if there is none.
    """

    uses_client = True

    def __init__(self, xs: Sequence[Any], axis: int, client: Any) -> None:
        self._xs = xs
        self._axis = axis
        self._client = client
        self._process = os.getpid()
        if client is not None and not isinstance(client, str):
            _check_client(client)
        for x in xs:
            if any(size != size for size in x.chunks[axis]):
                raise ConversionError(
                    "a Dask array with chunks of unknown sizes cannot be read block by block",
                    remedy="Call x.compute_chunk_sizes() first.",
                )
        self.lengths = [x.chunks[axis] for x in xs]

    def read(self, array: int, block: int) -> Any:
        return self.open([[(array, block)]]).read(0)[0]

    def open(self, steps: Sequence[Any]) -> Reader:
        from dask.highlevelgraph import HighLevelGraph

        whole = HighLevelGraph.merge(*(x.__dask_graph__() for x in self._xs))
        keys = [x.__dask_keys__() for x in self._xs]
        graph = persisted(whole)  # which optimizing may leave out
        graph.update(self._xs[0].__dask_optimize__(whole, keys))
        grids = [_grid(x, self._axis) for x in self._xs]
        wanted = [[grids[array][block] for array, block in step] for step in steps]
        return _DaskReader(graph, wanted, self._engine(graph))

    def _engine(self, graph: Mapping[Any, Any]) -> _Threads | _Cluster:
        client, own = self._client, False
        if client is None:
            client = _client_of(graph)
        get: Any = None
        if client is None:
            import dask

            get = dask.base.get_scheduler(collections=list(self._xs))
            client = getattr(get, "__self__", None)
            if _in_task():
                get = client = None
        if client is None:
            return _Threads(get)
        if not isinstance(client, str) and not self._answers(client):
            client = client.scheduler.address
        if isinstance(client, str):
            client, own = _connected(client), True
        _check_client(client)
        return _Cluster(client, own)

    def _answers(self, client: Any) -> bool:
        """Tell whether a client works in this process. It has no threads in one that was forked."""
        if self._process != os.getpid():
            return False
        try:
            client.sync(asyncio.sleep, 0, callback_timeout=ANSWER)
        except TimeoutError:
            return False
        except Exception:  # it is closed, which is told later
            pass
        return True

    def __getstate__(self) -> dict[str, Any]:
        client = self._client
        if client is not None and not isinstance(client, str):
            client = client.scheduler.address
        return {**self.__dict__, "_client": client}


def _check_client(client: Any) -> None:
    if not callable(getattr(client, "get", None)) or not hasattr(client, "scheduler"):
        raise OptionError(
            f"client={client!r:.80} is no client of Dask",
            remedy="Pass a distributed.Client, or the address of a scheduler.",
        )
    if client.asynchronous:
        raise OptionError(
            "client= is asynchronous, and a stream is not",
            remedy="Pass a client that was made without asynchronous=True.",
        )
    if client.status != "running":
        raise OptionError(
            f"client= is not connected: its status is {client.status!r}", remedy="Make a new one."
        )


def _connected(address: str) -> Any:
    import distributed

    try:
        return distributed.Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"no scheduler of Dask could be reached at {address!r} ({type(error).__name__}: {error})",
            remedy="Start one, or pass the address that it prints.",
        ) from error


def _dependencies(graph: Mapping[Any, Any], key: Any) -> Iterable[Any]:
    """Return the keys of the tasks that a task needs."""
    from dask.core import get_dependencies

    return () if is_future(graph[key]) else get_dependencies(graph, key)


def _client_of(graph: Mapping[Any, Any]) -> Any:
    """Return the client that holds results which are part of a graph, as of persisted arrays."""
    return next((value.client for value in graph.values() if is_future(value)), None)


def _reachable(client: Any) -> bool | None:
    """Tell whether blocks can be fetched from the workers themselves, and need not pass through the scheduler.

    Returns:
        None if it cannot be told.
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


def _in_task() -> bool:
    """Tell whether this runs in a task of a cluster, where waiting for other tasks may take for ever."""
    worker = sys.modules.get("distributed.worker")
    return bool(worker is not None and getattr(worker.thread_state, "key", None))


def _grid(x: Any, axis: int) -> list[Any]:
    """Return the keys of each block along an axis, nested as the chunks along the other axes are."""

    def nested(dim: int, at: tuple[int, ...], block: int) -> Any:
        if dim == x.ndim:
            return (x.name, *at)
        range_ = (block,) if dim == axis else range(x.numblocks[dim])
        return [nested(dim + 1, (*at, i), block) for i in range_]

    return [nested(0, (), block) for block in range(x.numblocks[axis])]


def _flat(keys: Any) -> Iterable[Any]:
    if isinstance(keys, list):
        return itertools.chain.from_iterable(map(_flat, keys))
    return (keys,)


def _filled(keys: Any, values: Mapping[Any, Any]) -> Any:
    return [_filled(key, values) for key in keys] if isinstance(keys, list) else values[keys]


class _Uses:
    """Which results of a graph are kept for later steps.

    Args:
        dependencies: tells what a task needs.
        outputs: the keys that each step asks for.

    Attributes:
        first: for each key whose result is kept, the step that computes it.
        counts: for each of these keys, how many steps need it.
        needed: for each step, those of these keys that it needs.
        at: for each step, the keys that are computed by it and kept, by how long: "close", "many" or "far".
    """

    def __init__(
        self, dependencies: Callable[[Any], Iterable[Any]], outputs: Sequence[Sequence[Any]]
    ) -> None:
        first: dict[Any, int] = {}
        order: list[Any] = []  # each key after what it depends on
        uses: dict[Any, set[int]] = {}
        for step, keys in enumerate(outputs):
            for key in keys:
                _visit(key, step, dependencies, first, order)
                uses.setdefault(key, set()).add(step)
        self.first: dict[Any, int] = {}
        self.counts: dict[Any, int] = {}
        self.needed: dict[int, list[Any]] = {}
        self.at: dict[int, dict[Any, str]] = {}
        for key in reversed(order):
            start, steps = first[key], uses.pop(key)
            runs = {start}
            distance = max(steps) - start
            if distance:
                kind = "close" if distance <= CLOSE else "many" if len(steps) > 2 else "far"
                self.first[key], self.counts[key] = start, len(steps)
                for step in steps:
                    self.needed.setdefault(step, []).append(key)
                self.at.setdefault(start, {})[key] = kind
                if kind == "far":
                    runs = steps  # unless it is kept
            for needed in dependencies(key):
                uses.setdefault(needed, set()).update(runs)


def _visit(
    key: Any,
    step: int,
    dependencies: Callable[[Any], Iterable[Any]],
    first: dict[Any, int],
    order: list[Any],
) -> None:
    """Note a key, and before it all that it depends on and that no step before needs."""
    waiting = [(key, False)]
    while waiting:
        key, done = waiting.pop()
        if done:
            order.append(key)
        elif key not in first:
            first[key] = step
            waiting.append((key, True))
            waiting.extend((needed, False) for needed in dependencies(key) if needed not in first)


class _DaskReader(Reader):
    """Computes the steps of one stream.

    Args:
        graph: the tasks of all arrays.
        wanted: for each step, the nested keys of each block.
        engine: what runs tasks.
    """

    def __init__(
        self, graph: dict[Any, Any], wanted: list[list[Any]], engine: _Threads | _Cluster
    ) -> None:
        self._graph = graph
        self._wanted = wanted
        self._engine = engine
        self._dependencies = functools.partial(_dependencies, graph)
        self._uses = _Uses(self._dependencies, [list(_flat(keys)) for keys in wanted])
        self._kept: dict[Any, Future[Any]] = {key: Future() for key in self._uses.counts}
        self._lock = threading.Lock()

    def read(self, step: int) -> Sequence[Any]:
        wanted = self._wanted[step]
        every = list(_flat(wanted))
        keys = list(dict.fromkeys(every))
        own = self._uses.at.get(step, {})
        try:
            values = dict(
                zip(
                    keys,
                    self._engine.run(self._tasks(keys, step), keys, own, self._keep),
                    strict=True,
                )
            )
        except BaseException as error:
            for key in own:
                if not self._kept[key].done():
                    self._kept[key].set_exception(error)
            raise
        for key in own:
            if not self._kept[key].done():
                self._keep(key, _AGAIN)
        self._drop(step)
        private = self._engine.private and len(keys) == len(every)  # no chunk is in two blocks
        return [_joined(_filled(block, values), private=private) for block in wanted]

    def close(self) -> None:
        self._engine.close()

    def _keep(self, key: Any, result: Any) -> None:
        """Keep the result of a task for later steps, or note that it is not kept."""
        if self._kept[key].done():
            self._kept[key] = Future()
        self._kept[key].set_result(result)

    def _tasks(self, keys: list[Any], step: int) -> dict[Any, Any]:
        """Return what a step runs, with what earlier steps kept."""
        tasks: dict[Any, Any] = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key in tasks:
                continue
            result, kept = _AGAIN, self._kept.get(key)
            if kept is not None and self._uses.first[key] < step:
                result = kept.result()  # waits for an earlier step, which began before this one
            if result is _AGAIN:
                tasks[key] = self._graph[key]
                waiting.extend(self._dependencies(key))
            else:
                tasks[key] = self._engine.as_task(result)
        return tasks

    def _drop(self, step: int) -> None:
        """Drop what no later step needs."""
        with self._lock:
            for key in self._uses.needed.pop(step, ()):
                self._uses.counts[key] -= 1
                if not self._uses.counts[key]:
                    self._engine.forget(key)
                    del self._kept[key]


def _joined(chunks: Any, *, private: bool) -> Any:
    """Return the chunks of one block as one array, in memory that nobody else writes to."""
    from dask.array.core import concatenate3

    only = chunks
    while isinstance(only, list) and len(only) == 1:
        only = only[0]
    if isinstance(only, list):
        return concatenate3(chunks)
    if private:
        return only
    import numpy as np

    if isinstance(only, (np.ndarray, np.generic)):
        return np.array(only, subok=True)
    backend = backend_of(only)
    return backend.copy(only) if backend.memory == "writable" else only


class _Value:
    """A task that returns a result that is known."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value


class _StoppedError(Exception):
    """The stream was closed."""


class _Threads:
    """Runs tasks in this process, or by another scheduler that the user has set.

    Args:
        get: the scheduler.
    """

    private = False

    def __init__(self, get: Any) -> None:
        import dask

        self._get = dask.threaded.get if get is None else get
        self._pool: ThreadPoolExecutor | None = None
        self._options: dict[str, Any] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._sizes: dict[Any, tuple[str, int]] = {}  # of what is kept
        self._totals = {"many": 0, "far": 0}
        if self._get is dask.threaded.get:
            pool = dask.config.get("pool", None)
            if pool is None:
                count = dask.config.get("num_workers", None) or dask.system.CPU_COUNT
                self._pool = pool = ThreadPoolExecutor(count, "arrayferry-stream")
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
        """Tell whether a result is kept."""
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
        """Return a task for a result that is known."""
        return (_Value(result),)

    def close(self) -> None:
        """Start no more tasks."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class _Cluster:
    """Runs tasks on a cluster. What is kept are futures.

    Args:
        client: the client.
        own: whether it is closed at the end.
    """

    def __init__(self, client: Any, own: bool) -> None:
        self._client = client
        self._own = own
        self._futures: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False
        self._direct: bool | None = client.direct_to_workers
        self.private = not client.scheduler.address.startswith("inproc")

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
        self._futures.update(futures)
        if self._closed:
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
                    keep(key, _AGAIN)
        return values

    def forget(self, key: Any) -> None:
        """Note that a result is no longer kept."""

    def as_task(self, result: Any) -> Any:
        """Return a task for a result that is known."""
        return result

    def close(self) -> None:
        """Cancel what was asked for."""
        self._closed = True
        for future in list(self._futures):  # what nobody else wants is cancelled by that
            future.release()
        if self._own:
            self._client.close()
