"""Readers compute the steps of a stream: in threads of this process, or on a cluster.

A result that several steps need is kept in memory from the first of these steps to the last. There are three kinds of
such results. "close": the steps are close together, as with overlaps and cumulative sums. "many": at least three steps
need the result, such as a mean or a model. "far": only one later step needs the result, such as a chunk from which a
mean is subtracted. Results of the last two kinds have a memory limit, since a stream must not need as much memory as
the whole array. A result above the limit is not kept, and is computed again.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from graphlib import TopologicalSorter
from typing import Any

from arrayferry._utilities.cache import existing
from arrayferry._utilities.threads import Threads
from arrayferry.typing import AnyTree
from arrayferry_streams import Reader

from .computing import in_own_memory, is_future

CLOSE = 2
"""A result is "close" if its last use is at most this many steps after its first."""

KEPT_BYTES = 128 * 1024 * 1024
"""The maximum size in bytes of all kept results of one kind, "many" or "far". A cluster has this limit per worker."""

WORKER = 1.0
"""The maximum number of seconds to wait for the answer of a worker to a direct connection."""

_reached: weakref.WeakSet[Any] = weakref.WeakSet()
"""The clients that can connect to workers directly."""

NOT_KEPT: Any = object()
"""The value in place of a result that was not kept, and so must be computed again."""


class DaskReader(Reader):
    """Computes the steps of one stream.

    Args:
        graph: the tasks of all arrays.
        wanted: for each step, the nested keys of each block.
    """

    def __init__(self, graph: dict[Any, Any], wanted: list[list[Any]]) -> None:
        from dask.core import flatten, get_dependencies

        self._graph = graph
        self._wanted = wanted
        self._keys = [list(flatten(keys)) for keys in wanted]
        self._needs = {
            key: () if is_future(task) else get_dependencies(graph, key)
            for key, task in graph.items()
        }
        self._plan()
        self._kept: dict[Any, Future[Any]] = {key: Future() for key in self._counts}
        self._lock = threading.Lock()

    def _plan(self) -> None:
        """Choose the results to keep for later steps."""
        # for each key whose result is kept, the number of steps that need the result
        self._counts: dict[Any, int] = {}
        # for each step: keys of kept results that it needs, and the kinds of those that it computes
        self._needed: dict[int, list[Any]] = {}
        self._at: dict[int, dict[Any, str]] = {}
        uses: dict[Any, set[int]] = {key: set() for key in self._needs}
        for step, keys in enumerate(self._keys):
            for key in keys:
                uses[key].add(step)
        ordered = [*TopologicalSorter(self._needs).static_order()]
        for key in reversed(ordered):  # keys that need `key` come first, so `uses[key]` is complete
            steps = uses[key]
            first_step = min(steps, default=0)
            distance = max(steps, default=0) - first_step
            computing_steps = steps
            if distance:
                kind = "close" if distance <= CLOSE else "many" if len(steps) > 2 else "far"
                self._counts[key] = len(steps)
                self._at.setdefault(first_step, {})[key] = kind
                for step in steps:
                    self._needed.setdefault(step, []).append(key)
                if kind != "far":  # each step, not only the first, may compute a "far" result
                    computing_steps = {first_step}
            for needed_key in self._needs[key]:
                uses[needed_key] |= computing_steps

    @abstractmethod
    def run(self, tasks: dict[Any, Any], keys: list[Any], kinds: Mapping[Any, str]) -> list[Any]:
        """Return the values of keys. Keep the results that later steps need, if they are not too large.

        Args:
            tasks: the tasks of the keys, and of all keys that they need.
            keys: the keys.
            kinds: for each key whose result later steps need, the kind of the result: "close", "many" or "far".
        """

    @abstractmethod
    def task_of(self, result: AnyTree) -> Any:
        """Return a task that returns a kept result."""

    def forget(self, key: Any) -> None:
        """Subtract the size of a result that is no longer kept from the total size. By default, there is no total."""

    def work(self, step: int) -> Iterable[Hashable]:
        from dask.core import istask

        return [key for key, task in self._tasks(step).items() if istask(task)]

    def read(self, step: int) -> Sequence[Any]:
        keys = list(dict.fromkeys(self._keys[step]))
        kinds = self._at.get(step, {})
        try:
            results = self.run(self._tasks(step), keys, kinds)
        except BaseException as error:
            for key in kinds:
                if not self._kept[key].done():
                    self._kept[key].set_exception(error)
            raise
        for key in kinds:
            if not self._kept[key].done():
                self._keep(key, NOT_KEPT)
        self._drop(step)
        values_by_key = dict(zip(keys, results, strict=True))
        chunks = [_filled(block, values_by_key) for block in self._wanted[step]]
        values_by_key.clear()
        results.clear()
        return [_joined(block) for block in chunks]

    def close(self) -> None:
        # errors of `distributed` may refer to this object, and would keep the graph in memory
        self._graph.clear()

    def _keep(self, key: Any, result: AnyTree) -> None:
        """Keep the result of a task for later steps. If `result` is `NOT_KEPT`, these steps compute it again."""
        if self._kept[key].done():
            self._kept[key] = Future()
        self._kept[key].set_result(result)

    def _tasks(self, step: int) -> dict[Any, Any]:
        """Return the tasks of a step. In place of the task of a kept result, return a task that returns the result."""
        tasks: dict[Any, Any] = {}
        pending_keys, kinds = list(self._keys[step]), self._at.get(step, {})
        while pending_keys:
            key = pending_keys.pop()
            if key in tasks:
                continue
            result, kept_future = NOT_KEPT, self._kept.get(key)
            if kept_future is not None and key not in kinds:
                result = kept_future.result()  # wait for the earlier step that computes the result
            if result is NOT_KEPT:
                tasks[key] = self._graph[key]
                pending_keys.extend(self._needs[key])
            else:
                tasks[key] = self.task_of(result)
        return tasks

    def _drop(self, step: int) -> None:
        """After a step, delete the results that no other step needs."""
        with self._lock:
            for key in self._needed.pop(step, ()):
                self._counts[key] -= 1
                if not self._counts[key]:
                    self.forget(key)
                    del self._kept[key]


class ThreadReader(DaskReader):
    """Computes steps by threads of this process, or by a scheduler that the user has set.

    Args:
        graph: the tasks of all arrays.
        wanted: for each step, the nested keys of each block.
        get: the scheduler, or None for threads.
    """

    def __init__(self, graph: dict[Any, Any], wanted: list[list[Any]], get: Any) -> None:
        import dask

        super().__init__(graph, wanted)
        self._get = dask.threaded.get if get is None else get
        self._options: dict[str, Any] = {}
        self._pool: Threads | None = None
        if self._get is dask.threaded.get and dask.config.get("pool", None) is None:
            num_workers = dask.config.get("num_workers", None) or dask.system.CPU_COUNT
            self._options["pool"] = self._pool = Threads(num_workers, "arrayferry-stream")
        local_schedulers = dask.threaded.get, dask.local.get_sync, dask.local.get_async
        self._takes_callbacks = getattr(self._get, "func", self._get) in local_schedulers
        # for each kept result of the kind "many" or "far", its kind and its size in bytes
        self._sizes: dict[Any, tuple[str, int]] = {}
        self._totals = {"many": 0, "far": 0}

    def run(self, tasks: dict[Any, Any], keys: list[Any], kinds: Mapping[Any, str]) -> list[Any]:
        def keep_result(key: Any, value: AnyTree, *_: Any) -> None:
            if key in kinds and self._fits(key, kinds[key], value):
                self._keep(key, value)

        options = self._options
        if self._takes_callbacks and kinds:
            options = {**options, "callbacks": [(None, None, None, keep_result, None)]}
        return list(self._get(tasks, keys, **options))

    def _fits(self, key: Any, kind: str, value: AnyTree) -> bool:
        """Return whether a result is small enough to be kept. If so, add its size to the total of its kind."""
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
        kind, size = self._sizes.pop(key, ("far", 0))
        self._totals[kind] -= size

    def task_of(self, result: AnyTree) -> Any:
        from dask.core import literal

        return (literal(result),)

    def abandon(self) -> None:
        if self._pool is not None:
            self._pool.abandon()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()


class ClusterReader(DaskReader):
    """Computes steps on a cluster. Kept results are futures, and stay on the workers.

    Args:
        graph: the tasks of all arrays.
        wanted: for each step, the nested keys of each block.
        client: the client of the cluster.
    """

    def __init__(self, graph: dict[Any, Any], wanted: list[list[Any]], client: Any) -> None:
        super().__init__(graph, wanted)
        self._client = client
        self._futures: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._direct: bool | None = client.direct_to_workers

    def run(self, tasks: dict[Any, Any], keys: list[Any], kinds: Mapping[Any, str]) -> list[Any]:
        kept_keys = [key for key, kind in kinds.items() if kind != "far"]
        futures = self._client.get(tasks, [*keys, *kept_keys], sync=False)
        self._futures.update((id(future), future) for future in futures)
        for key, future in zip(kept_keys, futures[len(keys) :], strict=True):
            self._keep(key, future)
        if self._direct is None:
            self._direct = _reachable(self._client)
        values = list(self._client.gather(futures[: len(keys)], direct=self._direct))
        many_keys = [key for key in kept_keys if kinds[key] == "many"]
        if many_keys:
            sizes = self._client.nbytes(many_keys, summary=False)
            bytes_limit = KEPT_BYTES * max(1, len(self._client.nthreads()))
            totals = itertools.accumulate(sizes.get(key, 0) for key in many_keys)
            for key, total in zip(many_keys, totals, strict=True):
                if total > bytes_limit:
                    self._keep(key, NOT_KEPT)
        return values

    def task_of(self, result: AnyTree) -> Any:
        return result

    def close(self) -> None:
        for future in existing(self._futures):
            future.release()  # the scheduler cancels tasks whose results nothing else needs
        super().close()


def _reachable(client: Any) -> bool | None:
    """Return whether this process can fetch blocks directly from the workers, instead of through the scheduler.

    Returns:
        None if this is unknown because there are no workers, or because the first worker uses neither TCP nor TLS.
    """
    if client in _reached:
        return True
    for address in client.nthreads():
        if not address.startswith(("tcp://", "tls://")):
            return None
        try:
            client.sync(client.rpc(address).identity, callback_timeout=WORKER)
        except (OSError, ValueError):
            return False
        _reached.add(client)
        return True
    return None


def _filled(keys: Any, values: Mapping[Any, Any]) -> Any:
    return [_filled(key, values) for key in keys] if isinstance(keys, list) else values[keys]


def _joined(chunks: list[Any]) -> Any:
    """Return the chunks of a block as one array, in memory that nothing else writes to.

    A list of one chunk is emptied, so that the list does not refer to the result.
    """
    from dask.array.core import concatenate3

    inner_list = chunks
    while len(inner_list) == 1 and isinstance(inner_list[0], list):
        inner_list = inner_list[0]
    if len(inner_list) > 1:
        return concatenate3(chunks)
    is_fresh = _is_unreferenced(inner_list)
    return in_own_memory(inner_list.pop(), fresh=is_fresh)


def _is_unreferenced(chunks: list[Any]) -> bool:
    """Return whether only a list of one array refers to the array, and only the array refers to its memory.

    A cluster sends arrays whose memory another array owns, their base. If several threads wait for one result, all of
    them receive the same array.
    """
    import numpy as np

    alone = _references([object()])
    if _references(chunks) != alone:
        return False
    if getattr(getattr(chunks[0], "flags", None), "owndata", False):
        return True
    if type(chunks[0]) is not np.ndarray or not chunks[0].flags.forc:  # elements may overlap
        return False
    return _references([chunks[0].base]) == alone + 1  # the array refers to its base, too


def _references(items: list[Any]) -> int:
    return sys.getrefcount(items[0])
