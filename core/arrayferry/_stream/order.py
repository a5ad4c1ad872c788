"""The order of an iteration: of the blocks that it reads, and of the rows that make up each result."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .arrays import StreamedArray, itemsize_of

if TYPE_CHECKING:
    import numpy as np

BLOCKS_TOGETHER = 4
"""How many blocks are permuted together if `buffer_size` is None."""

KEPT_BYTES = 128 * 1024 * 1024
"""Maximum size in bytes of smaller arrays whose blocks are kept in memory, so that they do not decide which blocks are read together."""

SMALL_BYTES = 1024 * 1024
"""Maximum size in bytes of arrays all of whose blocks are kept in memory."""


class Ordering(NamedTuple):
    """How the results of a stream differ from its blocks.

    Attributes:
        shuffle: whether blocks, and rows in a buffer, are permuted.
        seed: the seed of the permutations.
        buffer_size: how many rows are permuted together, None for 4 blocks.
        batch_size: the number of rows of a result, None for those of a block.
        drop_last: whether a last result with fewer rows is left out.
        is_drawn: whether the seed was drawn at random, so that another process has another one.
    """

    shuffle: bool = False
    seed: int = 0
    buffer_size: int | None = None
    batch_size: int | None = None
    drop_last: bool = False
    is_drawn: bool = False


def batch_bounds(length: int, size: int, drop_last: bool) -> list[tuple[int, int]]:
    """Return where batches of some rows begin and end."""
    stop = length - length % size if drop_last else length
    starts = range(0, stop, size)
    return list(zip(starts, (*starts[1:], stop), strict=False))


def linked_blocks(
    leaves: Sequence[StreamedArray], bounds: Sequence[tuple[int, int]]
) -> list[range]:
    """Return runs of blocks that need the same block of an array, so that they are read one after another.

    Blocks of smaller arrays are kept in memory instead, and an array of one block is in memory as a whole anyway.
    """
    linking: list[set[int]] = []  # where the blocks of each array begin and end
    total = 0
    read = sorted((leaf for leaf in leaves if leaf.group is not None), key=_size)
    for leaf in read:
        total += _size(leaf)
        if total > (SMALL_BYTES if leaf is read[-1] else KEPT_BYTES) and len(leaf.ends) > 1:
            linking.append({0, *leaf.ends})
    runs, first = [], 0
    for number in range(1, len(bounds) + 1):
        if number == len(bounds) or all(bounds[number][0] in ends for ends in linking):
            runs.append(range(first, number))
            first = number
    return runs


def _size(leaf: StreamedArray) -> int:
    return int(math.prod(leaf.x.shape)) * itemsize_of(leaf.x)


class Order:
    """The order of one iteration: of blocks, and of the rows in each window of blocks.

    Args:
        lengths: the lengths of all blocks.
        runs: the runs of blocks that are read one after another.
        ordering: how they are shuffled. If they are not, each block is a window.
        epoch: the number of the epoch.
        shard: the number of a reader, and how many there are. Each reads its part of the blocks.

    Attributes:
        steps: the blocks in the order in which they are read.
        windows: for each, its first step, the step after its last, its first row, and the row after its last.
        ends: for each result, the row after its last.
        shuffled: whether rows are permuted. If not, each result is a block.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        runs: Sequence[range],
        ordering: Ordering,
        epoch: int,
        shard: tuple[int, int],
    ) -> None:
        import numpy as np

        self._seed = (ordering.seed, epoch, *shard)
        self.shuffled = ordering.shuffle
        self.steps: Sequence[int] = range(len(lengths))
        if ordering.shuffle:
            shuffled = np.random.default_rng((ordering.seed, epoch)).permutation(len(runs)).tolist()
            index, count = shard
            self.steps = [block for run in shuffled for block in runs[run]][index::count]
        rows = [lengths[block] for block in self.steps]
        self.windows: list[tuple[int, int, int, int]] = []
        first = start = stop = 0
        for step, size in enumerate(rows):
            if step > first and self._is_full(step - first, stop - start, size, ordering):
                self.windows.append((first, step, start, stop))
                first, start = step, stop
            stop += size
        if stop:
            self.windows.append((first, len(rows), start, stop))
        self.ends = list(itertools.accumulate(rows))
        if ordering.shuffle and ordering.batch_size is not None:
            self.ends = [
                end for _, end in batch_bounds(stop, ordering.batch_size, ordering.drop_last)
            ]

    def _is_full(self, blocks: int, rows: int, following: int, ordering: Ordering) -> bool:
        """Return whether a window takes no further block."""
        if not self.shuffled:
            return True
        if ordering.buffer_size is None:
            return blocks == BLOCKS_TOGETHER
        return rows + following > ordering.buffer_size

    @property
    def longest(self) -> int:
        """The number of blocks of the longest window."""
        return max((stop - start for start, stop, _, _ in self.windows), default=1)

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
