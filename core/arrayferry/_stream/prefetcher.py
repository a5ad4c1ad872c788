"""The reads of one iteration: in order, ahead of time, and each block of an array once."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

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

_Blocks = list[tuple[StreamedArray, int]]
"""Blocks of arrays: the array of each, and its number there."""


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
        super().__init__(error, path)  # with which it is made again where tblib pickles causes
        self.error = error
        self.path = path


class Reading(NamedTuple):
    """How the arrays of a stream are read.

    Attributes:
        leaves: the arrays.
        groups: how those that are not in memory are read.
        prefetch: how many reads are started ahead, each in a thread of its own.
        timeout: seconds to wait for a read, None for no limit.
        copy: whether parts of arrays in memory are copied.
    """

    leaves: list[StreamedArray]
    groups: list[Blocks]
    prefetch: int
    timeout: float | None
    copy: bool


class Prefetcher:
    """The reads of one iteration: in order, ahead of time, and each block of an array once.

    Args:
        reading: how the arrays are read.
        bounds: where each requested block begins and ends.
        ahead: the number of blocks to read ahead, if that is more than `prefetch`.
    """

    def __init__(self, reading: Reading, bounds: Sequence[tuple[int, int]], ahead: int) -> None:
        groups, prefetch = reading.groups, reading.prefetch
        self._reading = reading
        self._bounds = bounds
        self._ahead = ahead if prefetch else 0
        self._last: dict[tuple[StreamedArray, int], int] = {}  # the last step that needs a block
        self._reads: list[list[_Blocks]] = []  # for each read, those of each group
        self._needed: list[int] = []  # how many reads must be complete for a step
        for step, (start, stop) in enumerate(bounds):
            new: list[_Blocks] = [[] for _ in groups]
            for leaf in reading.leaves:
                if leaf.group is None:
                    continue
                for block, *_ in leaf.pieces(start, stop):
                    if (leaf, block) not in self._last:
                        new[leaf.group].append((leaf, block))
                    self._last[leaf, block] = step
            if any(new):
                self._reads.append(new)
            self._needed.append(len(self._reads))
        self._readers: list[Reader] = []
        self._pool: Threads | None = None
        self._closed = False
        # One item for each read that has ended. Unlike a condition of Python, an interrupt cannot leave it locked.
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._started: list[Future[Any] | None] = []
        self._taken = 0
        self._held: dict[Any, Any] = {}
        blocks: Any = None
        try:
            for group, blocks in enumerate(groups):
                steps = [
                    [(leaf.number, block) for leaf, block in read[group]] for read in self._reads
                ]
                self._readers.append(blocks.open(steps))
        except BaseException as error:
            self.close()
            if isinstance(error, ArrayFerryError) or not isinstance(error, Exception):
                raise
            raise ContractError(
                f"{type(blocks).__name__}.open() raised {describe_error(error)}",
                method="open",
            ) from error
        if self._reads and (prefetch or reading.timeout is not None):
            self._pool = Threads(max(prefetch, 1), "arrayferry-stream")

    def take(self, step: int) -> list[Any]:
        """Return the parts of a block, one for each array.

        Raises:
            FailedError: one could not be read in time.
        """
        needed = self._needed[step]
        if self._pool is not None:
            last = min(step + self._ahead, len(self._bounds) - 1)
            ahead = max(needed + self._reading.prefetch, self._needed[last])
            while len(self._started) < min(ahead, len(self._reads)):
                self._started.append(self._start(self._pool, len(self._started)))
        while self._taken < needed:
            self._hold(self._taken)
            self._taken += 1
        start, stop = self._bounds[step]
        parts = [self._part(leaf, start, stop) for leaf in self._reading.leaves]
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
        """Wait for a read, and hold its blocks until they are not needed any more."""
        future = self._started[index] if self._pool is not None else None
        try:
            if future is not None:
                self._wait(future)
            results = self._read(index) if future is None else future.result()
        except (KeyboardInterrupt, FailedError):
            raise
        except BaseException as error:  # also one that would end the process, from a task
            raise FailedError(error, self._path_of(index)) from error
        if future is not None:
            self._started[index] = None
        for wanted, values in zip(self._reads[index], results, strict=True):
            if len(values) != len(wanted):
                raise FailedError(
                    TypeError(f"{len(values)} blocks were read instead of {len(wanted)}")
                )
            self._held.update(zip(wanted, values, strict=True))

    def _wait(self, future: Future[Any]) -> None:
        """Wait for a read, or until another thread closes the iteration."""
        timeout = self._reading.timeout
        end = None if timeout is None else time.monotonic() + timeout
        while not future.done():
            if self._closed:
                raise RuntimeError("it was closed")
            try:
                self._ended.get(timeout=None if end is None else max(0, end - time.monotonic()))
            except queue.Empty:
                raise FailedError(None) from None

    def abandon(self) -> None:
        """Let the process end without waiting for reads that hang."""
        for reader in self._readers:
            self._call_safely(reader, "abandon")
        if self._pool is not None:
            self._pool.abandon()

    def _path_of(self, index: int) -> str:
        """Return the places of the first arrays that a read is for."""
        wanted = {leaf for each in self._reads[index] for leaf, _ in each}
        paths = [leaf.path for leaf in self._reading.leaves if leaf in wanted]
        return ", ".join(filter(None, paths[:4])) + (" ..." if len(paths) > 4 else "")

    def _part(self, leaf: StreamedArray, start: int, stop: int) -> Any:
        if leaf.axis is None:
            return self.own(leaf.x)
        before = (slice(None),) * leaf.axis
        if leaf.group is None:
            return self.own(leaf.x[(*before, slice(start, stop))])
        pieces = []
        for block, length, piece in leaf.pieces(start, stop):
            x = self._held[leaf, block]
            shape = tuple(getattr(x, "shape", ()))
            if shape[leaf.axis : leaf.axis + 1] != (length,):
                raise FailedError(
                    ValueError(f"it has the shape {shape}, not the length {length}"), leaf.path
                )
            if piece.stop - piece.start == length == stop - start:
                return x
            pieces.append(x[(*before, piece)])
        return guarded(leaf, concatenated, pieces, leaf.axis)

    def own(self, x: Any) -> Any:
        """Copy a part of an array in memory, unless it never changes or sharing was asked for."""
        if not self._reading.copy:
            return x
        backend = backend_of(x)
        return x if backend.memory == "immutable" else call_backend(backend, "copy", x)

    def close(self) -> None:
        """Cancel the reads that have not ended."""
        self._closed = True
        self._ended.put(None)
        for reader in self._readers:
            self._call_safely(reader, "close")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        # an object that still holds this, such as the frame of a read that failed, holds no array
        self._reading = self._reading._replace(leaves=[], groups=[])
        self._readers = []
        for each in (self._held, self._started, self._reads, self._last):
            each.clear()

    def _call_safely(self, reader: Reader, method: str) -> None:
        """Call a method that a plugin may have overridden. An error becomes a warning."""
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
