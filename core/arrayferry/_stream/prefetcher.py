"""The reads of one iteration: in order, ahead of time, and each block of an array once."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from arrayferry._api import backend_of
from arrayferry._errors import (
    ArrayFerryError,
    ContractError,
    PluginWarning,
    describe_error,
)
from arrayferry._plugin.blocks import Blocks, Reader
from arrayferry._plugin.call import call_backend
from arrayferry._plugin.threads import Threads

from .arrays import StreamedArray

__all__ = ["FailedError", "Prefetcher", "concatenated", "guarded"]


class FailedError(Exception):
    """A block could not be read, or rows of blocks could not be put together.

    Args:
        error: why, None if reading took too long.
        path: the place of the array, if it is known.

    Attributes:
        block: the number of the block, None if several are concerned.
    """

    block: int | None = None

    def __init__(self, error: BaseException | None, path: str = "") -> None:
        super().__init__()
        self.error = error
        self.path = path


class Prefetcher:
    """The reads of one iteration: in order, ahead of time, and each block of an array once.

    Args:
        groups: how the arrays are read.
        leaves: the arrays.
        bounds: the blocks that are asked for.
        prefetch: how many reads are started ahead, each in a thread of its own.
        ahead: how many blocks may wait until they are taken, if that is more.
        timeout: seconds to wait for a read, None for no limit.
        copy: whether parts of arrays in memory are copied.
    """

    def __init__(
        self,
        groups: list[Blocks],
        leaves: list[StreamedArray],
        bounds: Sequence[tuple[int, int]],
        prefetch: int,
        ahead: int,
        timeout: float | None,
        copy: bool,
    ) -> None:
        self._leaves = leaves
        self._bounds = bounds
        self._prefetch = prefetch
        self._ahead = ahead if prefetch else 0
        self._timeout = timeout
        self._copy = copy
        self._last: dict[Any, int] = {}  # the last step that needs a block of an array
        reads: list[list[list[tuple[int, int]]]] = []
        self._needed: list[int] = []  # how many reads must be complete for a step
        for step, (start, stop) in enumerate(bounds):
            new: list[list[tuple[int, int]]] = [[] for _ in groups]
            for leaf in leaves:
                if leaf.group is None:
                    continue
                for block, _, _ in leaf.pieces(start, stop):
                    key = (leaf.group, leaf.number, block)
                    if key not in self._last:
                        new[leaf.group].append((leaf.number, block))
                    self._last[key] = step
            if any(new):
                reads.append(new)
            self._needed.append(len(reads))
        self._reads = reads
        self._readers: list[Reader] = []
        self._pool: Threads | None = None
        self._closed = False
        # One item for each read that has ended. Unlike a condition of Python, an interrupt cannot leave it locked.
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._started: list[Future[Any] | None] = []
        self._taken = 0
        self._held: dict[Any, Any] = {}
        try:
            for group in range(len(groups)):
                self._readers.append(groups[group].open([read[group] for read in reads]))
        except BaseException as error:
            self.close()
            if isinstance(error, ArrayFerryError) or not isinstance(error, Exception):
                raise
            raise ContractError(
                f"{type(groups[len(self._readers)]).__name__}.open() raised {describe_error(error)}",
                method="open",
            ) from error
        if reads and (prefetch or timeout is not None):
            self._pool = Threads(max(prefetch, 1), "arrayferry-stream")

    def take(self, step: int) -> list[Any]:
        """Return the parts of a block, one for each array.

        Raises:
            FailedError: one could not be read in time.
        """
        needed = self._needed[step]
        if self._pool is not None:
            last = min(step + self._ahead, len(self._bounds) - 1)
            ahead = max(needed + self._prefetch, self._needed[last])
            while len(self._started) < min(ahead, len(self._reads)):
                self._started.append(self._start(self._pool, len(self._started)))
        while self._taken < needed:
            self._hold(self._taken)
            self._taken += 1
        start, stop = self._bounds[step]
        parts = [self._part(leaf, start, stop) for leaf in self._leaves]
        for key in [key for key in self._held if self._last[key] <= step]:
            del self._held[key]
        return parts

    def _start(self, pool: Threads, index: int) -> Future[Any]:
        future, note = pool.submit(self._read, index), self._ended.put
        future.add_done_callback(lambda _: note(None))
        return future

    def _read(self, index: int) -> list[Sequence[Any]]:
        return [reader.read(index) for reader in self._readers]

    def _hold(self, index: int) -> None:
        """Wait for a read, and hold what it returned until it is not needed any more."""
        future = self._started[index] if self._pool is not None else None
        try:
            if future is not None:
                self._wait(future)
            results = self._read(index) if future is None else future.result()
        except (KeyboardInterrupt, FailedError):
            raise
        except BaseException as error:  # also what would end the process, from a task
            raise FailedError(error, self._path_of(index)) from error
        if future is not None:
            self._started[index] = None
        for group, (wanted, values) in enumerate(zip(self._reads[index], results, strict=True)):
            if len(values) != len(wanted):
                raise FailedError(
                    TypeError(f"{len(values)} blocks were read instead of {len(wanted)}")
                )
            for (number, block), x in zip(wanted, values, strict=True):
                self._held[group, number, block] = x

    def _wait(self, future: Future[Any]) -> None:
        """Wait for a read, or until another thread closes the iteration."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while not future.done():
            if self._closed:
                raise RuntimeError("it was closed")
            try:
                self._ended.get(timeout=None if end is None else max(0, end - time.monotonic()))
            except queue.Empty:
                raise FailedError(None) from None

    def abandon(self) -> None:
        """Let the process end without waiting for what hangs."""
        for reader in self._readers:
            self._guarded(reader, "abandon")
        if self._pool is not None:
            self._pool.abandon()

    def _path_of(self, index: int) -> str:
        """Return the places of the first arrays that a read is for."""
        wanted = {(group, n) for group, each in enumerate(self._reads[index]) for n, _ in each}
        paths = [leaf.path for leaf in self._leaves if (leaf.group, leaf.number) in wanted]
        return ", ".join(filter(None, paths[:4])) + (" ..." if len(paths) > 4 else "")

    def _part(self, leaf: StreamedArray, start: int, stop: int) -> Any:
        if leaf.axis is None:
            return self.own(leaf.x)
        before = (slice(None),) * leaf.axis
        if leaf.group is None:
            return self.own(leaf.x[(*before, slice(start, stop))])
        pieces = []
        for block, first, last in leaf.pieces(start, stop):
            x = self._held[leaf.group, leaf.number, block]
            length = leaf.ends[block] - (leaf.ends[block - 1] if block else 0)
            shape = tuple(getattr(x, "shape", ()))
            if shape[leaf.axis : leaf.axis + 1] != (length,):
                raise FailedError(
                    ValueError(f"it has the shape {shape}, not the length {length}"), leaf.path
                )
            if last - first == length == stop - start:
                return x
            pieces.append(x[(*before, slice(first, last))])
        return guarded(leaf, concatenated, pieces, leaf.axis)

    def own(self, x: Any) -> Any:
        """Copy a part of an array in memory, unless it never changes or sharing was asked for."""
        if not self._copy:
            return x
        backend = backend_of(x)
        return x if backend.memory == "immutable" else call_backend(backend, "copy", x)

    def close(self) -> None:
        """Cancel what has not been read yet."""
        self._closed = True
        self._ended.put(None)
        for reader in self._readers:
            self._guarded(reader, "close")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        # Whoever still holds this, such as the frame of a read that failed, holds no array.
        self._leaves, self._readers = [], []
        self._held.clear()
        self._started.clear()

    def _guarded(self, reader: Reader, method: str) -> None:
        try:
            getattr(reader, method)()
        except Exception as error:
            warnings.warn(
                f"{type(reader).__name__}.{method}() raised {describe_error(error)}",
                PluginWarning,
                stacklevel=3,
            )


def guarded(leaf: StreamedArray, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that puts rows of an array together.

    Raises:
        FailedError: it raised an error.
    """
    try:
        return function(*arguments)
    except Exception as error:
        raise FailedError(error, leaf.path) from error


def concatenated(pieces: list[Any], axis: int) -> Any:
    """Join parts of blocks in memory of their own, so that no part keeps a whole block alive."""
    import numpy as np

    if all(type(piece) is np.ndarray for piece in pieces):
        return np.concatenate(pieces, axis)
    if any(isinstance(piece, np.ma.MaskedArray) for piece in pieces):
        joined: Any = np.ma.concatenate  # numpy.concatenate drops masks
        return joined(pieces, axis)
    import array_api_compat

    return array_api_compat.array_namespace(*pieces).concat(pieces, axis=axis)
