"""Results in another order or of another size than blocks: batches, and rows that are shuffled."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .arrays import StreamedArray
from .prefetcher import FailedError, Prefetcher, concatenated

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EpochOrder", "Ordering", "Progress", "ShuffledReads", "batch_bounds", "linked_blocks"]


class Ordering(NamedTuple):
    """How the results of a stream differ from its blocks.

    Attributes:
        shuffle: whether blocks, and rows in a buffer, are permuted.
        seed: of the permutations.
        buffer_size: how many rows are permuted together, None for `prefetch` + 2 blocks.
        batch_size: the number of rows of a result, None for those of a block.
        drop_last: whether a last result with fewer rows is left out.
    """

    shuffle: bool = False
    seed: int = 0
    buffer_size: int | None = None
    batch_size: int | None = None
    drop_last: bool = False


class Progress:
    """How far an iteration has come.

    Attributes:
        epoch: its epoch.
        position: how many results were taken.
    """

    def __init__(self, epoch: int, position: int = 0) -> None:
        self.epoch = epoch
        self.position = position


def batch_bounds(length: int, size: int, drop_last: bool) -> list[tuple[int, int]]:
    """Return where batches of some rows begin and end."""
    stop = length - length % size if drop_last else length
    return [(start, min(start + size, length)) for start in range(0, stop, size)]


def linked_blocks(
    leaves: Sequence[StreamedArray], bounds: Sequence[tuple[int, int]]
) -> list[range]:
    """Return runs of blocks that need the same block of an array, so that they are read one after another."""
    runs, first = [], 0
    for number in range(1, len(bounds) + 1):
        if number < len(bounds):
            at = bounds[number][0]
            if any(_cuts(leaf.ends, at) for leaf in leaves if leaf.group is not None):
                continue
        runs.append(range(first, number))
        first = number
    return runs if bounds else []


def _cuts(ends: list[int], at: int) -> bool:
    """Tell whether a place is inside a block."""
    number = bisect_right(ends, at)
    return at not in (0, ends[number - 1] if number else 0)


class EpochOrder:
    """The order of one epoch: of blocks, and of the rows in each window of blocks.

    Args:
        lengths: of all blocks.
        runs: of blocks that are read one after another.
        ordering: how they are shuffled.
        epoch: which epoch.
        shard: the number of a reader, and how many there are. Each reads its part of the blocks.
        blocks_together: how many blocks are a window if no number of rows was given.

    Attributes:
        steps: the blocks in the order in which they are read.
        windows: for each, its first step, the step after its last, its first row, and the row after its last.
        ends: for each result, the row after its last.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        runs: Sequence[range],
        ordering: Ordering,
        epoch: int,
        shard: tuple[int, int],
        blocks_together: int,
    ) -> None:
        import numpy as np

        self._seed = (ordering.seed, epoch, *shard)
        shuffled = np.random.default_rng((ordering.seed, epoch)).permutation(len(runs)).tolist()
        index, count = shard
        self.steps = [block for run in shuffled for block in runs[run]][index::count]
        rows = [lengths[block] for block in self.steps]
        self.windows: list[tuple[int, int, int, int]] = []
        first = start = stop = 0
        for step, size in enumerate(rows):
            full = (
                step - first == blocks_together
                if ordering.buffer_size is None
                else stop + size - start > ordering.buffer_size
            )
            if full and step > first:
                self.windows.append((first, step, start, stop))
                first, start = step, stop
            stop += size
        if stop:
            self.windows.append((first, len(rows), start, stop))
        if ordering.batch_size is None:
            self.ends = list(itertools.accumulate(rows))
        else:
            bounds = batch_bounds(stop, ordering.batch_size, ordering.drop_last)
            self.ends = [end for _, end in bounds]

    def result(self, number: int) -> tuple[int, int]:
        """Return the rows of a result."""
        return self.ends[number - 1] if number else 0, self.ends[number]

    def window_of(self, row: int) -> int:
        """Return the number of the window with a row."""
        return bisect_right(self.windows, row, key=lambda window: window[2]) - 1

    def rows(self, window: int) -> np.ndarray[Any, Any]:
        """Return the permutation of the rows of a window."""
        import numpy as np

        _, _, start, stop = self.windows[window]
        return np.random.default_rng((*self._seed, window)).permutation(stop - start)


class ShuffledReads:
    """The reads of one epoch: windows of blocks, whose rows are handed out in another order.

    Args:
        order: the order.
        first: the number of the first result.
        leaves: the arrays.
        open_reads: takes the steps that are read, and how many are read ahead, and begins to read.
        part: takes the reads, the number among them, and the block, and returns the parts of the block.
    """

    def __init__(
        self,
        order: EpochOrder,
        first: int,
        leaves: Sequence[StreamedArray],
        open_reads: Callable[[list[int], int], Prefetcher],
        part: Callable[[Prefetcher, int, int], list[Any]],
    ) -> None:
        self._order = order
        self._leaves = leaves
        self._part = part
        self._window = order.window_of(order.result(first)[0]) if order.ends else 0
        self._skipped = order.windows[self._window][0] if order.windows else 0
        most = max((stop - start for start, stop, _, _ in order.windows), default=1)
        self._reads = open_reads(order.steps[self._skipped :], most)
        self._loaded: deque[tuple[int, int, list[Any], Any]] = deque()
        self._buffers: list[_Buffer | None] = [None] * len(
            leaves
        )  # of the last window that was used up

    def take(self, number: int) -> list[Any]:
        """Return the parts of a result, one for each array. Results are taken in order."""
        start, stop = self._order.result(number)
        while not self._loaded or self._loaded[-1][1] < stop:
            self._loaded.append(self._load())
        pieces: list[list[Any]] = [[] for _ in self._leaves]
        for first, last, buffers, rows in self._loaded:
            chosen = rows[max(start - first, 0) : max(min(stop, last) - first, 0)]
            if not len(chosen):
                continue
            for leaf, buffer, own in zip(self._leaves, buffers, pieces, strict=True):
                if buffer is not None:
                    own.append(self._guarded(leaf, buffer.take, chosen))
        while self._loaded and self._loaded[0][1] <= stop:
            _, _, self._buffers, _ = self._loaded.popleft()
        return [
            self._reads.own(leaf.x)
            if leaf.axis is None
            else self._guarded(leaf, _joined, own, leaf.axis)
            for leaf, own in zip(self._leaves, pieces, strict=True)
        ]

    def _load(self) -> tuple[int, int, list[Any], Any]:
        """Read the next window. Return its first row, the row after its last, its arrays, and its permutation."""
        first, last, start, stop = self._order.windows[self._window]
        buffers = [
            None if leaf.axis is None else _Buffer(leaf.axis, stop - start, used)
            for leaf, used in zip(self._leaves, self._buffers, strict=True)
        ]
        self._buffers = [None] * len(buffers)
        for step in range(first, last):
            read = self._part(self._reads, step - self._skipped, self._order.steps[step])
            for leaf, buffer, x in zip(self._leaves, buffers, read, strict=True):
                if buffer is not None:
                    self._guarded(leaf, buffer.add, x)
            del read
        rows = self._order.rows(self._window)
        self._window += 1
        return start, stop, buffers, rows

    def _guarded(self, leaf: StreamedArray, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise FailedError(error, leaf.path) from error

    def abandon(self) -> None:
        """Let the process end without waiting for what hangs."""
        self._reads.abandon()

    def close(self) -> None:
        """Cancel what has not been read yet."""
        self._reads.close()
        self._loaded.clear()


class _Buffer:
    """The blocks of a window, one after another. Those of NumPy are copied into one array as they come.

    Args:
        axis: along which they are joined.
        length: how many rows there will be.
        used: a buffer whose memory is not needed any more.
    """

    def __init__(self, axis: int, length: int, used: _Buffer | None = None) -> None:
        self._axis = axis
        self._length = length
        self._filled = 0
        self._array: Any = None
        self._spare = None if used is None else used._array
        self._pieces: list[Any] = []

    def add(self, x: Any) -> None:
        """Add a block."""
        import numpy as np

        length = x.shape[self._axis]
        if type(x) is not np.ndarray or length == self._length or not self._fits(x):
            if self._array is not None:
                self._pieces.append(self._array[self._rows(0, self._filled)])
                self._array = None
            self._pieces.append(x)
            return
        if self._array is None:
            shape = (*x.shape[: self._axis], self._length, *x.shape[self._axis + 1 :])
            spare, self._spare = self._spare, None
            fits = spare is not None and spare.shape == shape and spare.dtype == x.dtype
            self._array = spare if fits else np.empty(shape, x.dtype)  # new memory takes time
        self._array[self._rows(self._filled, self._filled + length)] = x
        self._filled += length

    def _rows(self, start: int, stop: int) -> Any:
        return (*[slice(None)] * self._axis, slice(start, stop))

    def _fits(self, x: Any) -> bool:
        if self._array is None:
            return not self._pieces
        shape, own = list(x.shape), list(self._array.shape)
        del shape[self._axis], own[self._axis]
        return x.dtype == self._array.dtype and shape == own

    def take(self, rows: Any) -> Any:
        """Return some rows, in memory of their own."""
        import numpy as np

        if self._pieces:
            self._pieces = [_joined(self._pieces, self._axis)]
        x = self._pieces[0] if self._pieces else self._array
        if isinstance(x, np.ndarray):  # also a masked one
            return x.take(rows, axis=self._axis)
        import array_api_compat

        xp = array_api_compat.array_namespace(x)
        return xp.take(x, xp.asarray(rows), axis=self._axis)


def _joined(pieces: list[Any], axis: int) -> Any:
    return pieces[0] if len(pieces) == 1 else concatenated(pieces, axis)
