"""Streams of Dask arrays: the chunks along an axis are computed one after another.

All arrays of a stream share one graph, which is optimized once. A result that several steps need is kept
from the first to the last of them: if they are close together, as with overlaps and cumulative sums, if many
steps need it, as with a mean or a model, or if it is needed once more much later, such as the chunks
from which the mean is subtracted. Of the last two kinds, as much is kept as fits into a limit, since a stream
must not take as much memory as the whole array. The rest is computed again.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from arrayferry import Blocks, ConversionError, Reader, backend_of

from .computing import scheduler_of
from .engines import NOT_KEPT, ClusterEngine, ThreadEngine, check_client, connected, reconnected
from .graphs import arguments, is_future, owner_of, persisted

CLOSE = 2
"""A result that is needed for at most this many more steps is kept, whatever its size."""
ANSWER = 3.0
"""Seconds to wait for a sign of life of a client in this process."""


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
            check_client(client, "client=")
        for x in xs:
            if any(size != size for size in x.chunks[axis]):
                raise ConversionError(
                    "a Dask array with chunks of unknown sizes cannot be read block by block",
                    remedy="Call x.compute_chunk_sizes() first.",
                )
        self.lengths: Sequence[Sequence[int]] = [x.chunks[axis] for x in xs]

    def read(self, array: int, block: int) -> Any:
        reader = self.open([[(array, block)]])
        try:
            return reader.read(0)[0]
        finally:
            reader.close()

    def portable_client(self) -> Any:
        given = self._client is not None
        client = self._client if given else _current_client(self._xs)
        if client is None or isinstance(client, str):
            return client
        address = client.scheduler.address
        if given:
            return address
        return None if address.startswith("inproc") else _Formerly(address)

    def open(self, steps: Sequence[Any]) -> Reader:
        from dask.highlevelgraph import HighLevelGraph

        whole = HighLevelGraph.merge(*(x.__dask_graph__() for x in self._xs))
        keys = [x.__dask_keys__() for x in self._xs]
        graph = persisted(whole)  # which optimizing may leave out
        computed = [*graph.values(), *arguments(whole)]
        graph.update(self._xs[0].__dask_optimize__(whole, keys))
        blocks = [_along(nested, self._axis) for nested in keys]
        wanted = [[blocks[array][block] for array, block in step] for step in steps]
        return _DaskReader(graph, wanted, self._engine(computed))

    def _engine(self, futures: Sequence[Any]) -> ThreadEngine | ClusterEngine:
        given = self._client is not None and not isinstance(self._client, _Formerly)
        client, own = self._client if given else owner_of(futures), False
        get: Any = None
        if client is None:
            get = _current_scheduler(self._xs)
            client = getattr(get, "__self__", None)
            if _in_task():
                get = client = None
            elif get is None and self._client is not None:
                client, own = reconnected(self._client), True
        if client is None:
            return ThreadEngine(get)
        if not isinstance(client, str) and not self._answers(client):
            client = client.scheduler.address
        if isinstance(client, str):
            client, own = connected(client), True
        check_client(client, "client=" if given else "the current client")
        return ClusterEngine(client, own)

    def _answers(self, client: Any) -> bool:
        """Return whether a client works in this process. It has no threads in one that was forked."""
        if self._process != os.getpid():
            return False
        if client.asynchronous:  # which is an error later
            return True
        try:
            client.sync(asyncio.sleep, 0, callback_timeout=ANSWER)
        except TimeoutError:
            return False
        except Exception:  # it is closed, which is an error later
            pass
        return True


class _Formerly(str):
    """The address of the cluster whose client was the current one where a stream was pickled."""


def _current_scheduler(xs: Sequence[Any]) -> Any:
    """Return the scheduler that `compute()` would use, None for the usual threads."""
    import dask

    get = scheduler_of(xs)
    return None if get is dask.threaded.get and not dask.config.get("scheduler", None) else get


def _current_client(xs: Sequence[Any]) -> Any:
    """Return the client that `compute()` would use, None if it would use none."""
    try:
        client = getattr(_current_scheduler(xs), "__self__", None)
    except ConversionError:  # it is asynchronous
        import distributed

        client = distributed.default_client()
    return client if hasattr(client, "scheduler") else None


def _dependencies(graph: Mapping[Any, Any], key: Any) -> Iterable[Any]:
    """Return the keys of the tasks that a task needs."""
    from dask.core import get_dependencies

    return () if is_future(graph[key]) else get_dependencies(graph, key)


def _in_task() -> bool:
    """Return whether this runs in a task of a cluster, where waiting for other tasks may take forever."""
    worker = sys.modules.get("distributed.worker")
    return bool(worker is not None and getattr(worker.thread_state, "key", None))


def _along(keys: Any, axis: int) -> list[Any]:
    """Return the keys of each block along an axis, nested as the chunks along the other axes are."""
    if axis == 0:
        return [[key] for key in keys]
    return [list(block) for block in zip(*(_along(inner, axis - 1) for inner in keys), strict=True)]


def _filled(keys: Any, values: Mapping[Any, Any]) -> Any:
    return [_filled(key, values) for key in keys] if isinstance(keys, list) else values[keys]


class _Uses:
    """Which results of a graph are kept for later steps.

    Args:
        dependencies: returns the keys that a task needs.
        outputs: the keys that each step asks for.

    Attributes:
        first: for each key whose result is kept, the step that computes it.
        counts: for each of these keys, how many steps need it.
        needed: for each step, those of these keys that it needs.
        at: for each step, the keys that it computes and whose results are kept, and why: "close", "many" or "far".
    """

    def __init__(
        self, dependencies: Callable[[Any], Iterable[Any]], outputs: Sequence[Sequence[Any]]
    ) -> None:
        first: dict[Any, int] = {}
        order: list[Any] = []  # each key after those that it depends on
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
    """Note a key, and before it everything that it depends on and that no earlier step needs."""
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
        engine: runs the tasks.
    """

    def __init__(
        self, graph: dict[Any, Any], wanted: list[list[Any]], engine: ThreadEngine | ClusterEngine
    ) -> None:
        from dask.core import flatten

        self._graph = graph
        self._wanted = wanted
        self._engine = engine
        self._dependencies = functools.partial(_dependencies, graph)
        self._keys = [list(flatten(keys)) for keys in wanted]
        self._uses = _Uses(self._dependencies, self._keys)
        self._kept: dict[Any, Future[Any]] = {key: Future() for key in self._uses.counts}
        self._lock = threading.Lock()

    def read(self, step: int) -> Sequence[Any]:
        every = self._keys[step]
        keys = list(dict.fromkeys(every))
        own = self._uses.at.get(step, {})
        try:
            results = self._engine.run(self._tasks(keys, step), keys, own, self._keep)
        except BaseException as error:
            for key in own:
                if not self._kept[key].done():
                    self._kept[key].set_exception(error)
            raise
        for key in own:
            if not self._kept[key].done():
                self._keep(key, NOT_KEPT)
        self._drop(step)
        owned = self._engine.owned and len(keys) == len(every)  # no chunk is in two blocks
        values = dict(zip(keys, results, strict=True))
        chunks = [_filled(block, values) for block in self._wanted[step]]
        values.clear()
        results.clear()
        return [_joined(each, owned=owned) for each in chunks]

    def abandon(self) -> None:
        self._engine.abandon()

    def close(self) -> None:
        self._engine.close()
        self._graph.clear()  # errors of distributed hold the frames of cancelled tasks, and so this object

    def _keep(self, key: Any, result: Any) -> None:
        """Keep the result of a task for later steps, or note that it is not kept."""
        if self._kept[key].done():
            self._kept[key] = Future()
        self._kept[key].set_result(result)

    def _tasks(self, keys: list[Any], step: int) -> dict[Any, Any]:
        """Return the tasks of a step. Results that earlier steps kept stand in place of theirs."""
        tasks: dict[Any, Any] = {}
        waiting = list(keys)
        while waiting:
            key = waiting.pop()
            if key in tasks:
                continue
            result, kept = NOT_KEPT, self._kept.get(key)
            if kept is not None and self._uses.first[key] < step:
                result = kept.result()  # waits for an earlier step, which began before this one
            if result is NOT_KEPT:
                tasks[key] = self._graph[key]
                waiting.extend(self._dependencies(key))
            else:
                tasks[key] = self._engine.as_task(result)
        return tasks

    def _drop(self, step: int) -> None:
        """Drop the results that no later step needs."""
        with self._lock:
            for key in self._uses.needed.pop(step, ()):
                self._uses.counts[key] -= 1
                if not self._uses.counts[key]:
                    self._engine.forget(key)
                    del self._kept[key]


def _joined(chunks: list[Any], *, owned: bool) -> Any:
    """Return the chunks of one block as one array, in memory that nobody else writes to. They are taken out."""
    from dask.array.core import concatenate3

    inner = chunks
    while len(inner) == 1 and isinstance(inner[0], list):
        inner = inner[0]
    if len(inner) > 1:
        return concatenate3(chunks)
    if owned or _is_owned(inner):
        return inner.pop()
    import numpy as np

    only = inner.pop()
    if isinstance(only, (np.ndarray, np.generic)):
        return np.array(only, subok=True)
    backend = backend_of(only)
    return backend.copy(only) if backend.memory == "writable" else only


def _is_owned(chunks: list[Any]) -> bool:
    """Return whether nobody but a list refers to its array, nor to the memory of that."""
    import numpy as np

    x = chunks[0]
    if type(x) is not np.ndarray or not x.flags.owndata or not x.flags.writeable:
        return False
    del x
    return _references(chunks) == _references([object()])


def _references(items: list[Any]) -> int:
    return sys.getrefcount(items[0])
