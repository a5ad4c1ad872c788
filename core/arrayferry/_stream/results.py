"""The results of one iteration, put together from the blocks that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .order import Order
from .prefetcher import FailedError, Prefetcher, Reading, concatenated, guarded


class Results:
    """Reads windows of blocks, and returns their rows, result by result.

    Args:
        reading: how the arrays are read.
        order: the order of the blocks and rows.
        bounds: where each block begins and ends.
        first: the number of the first result.
    """

    def __init__(
        self, reading: Reading, order: Order, bounds: Sequence[tuple[int, int]], first: int
    ) -> None:
        self._order = order
        self._leaves = leaves = reading.leaves
        self._window = order.window_of(order.result(first)[0])  # the next one to read
        self._skipped = order.windows[self._window][0]
        blocks = order.steps[self._skipped :]
        self._prefetcher = Prefetcher(reading, [bounds[block] for block in blocks], order.longest)
        self._begin = self._end = 0  # the rows of the window in memory
        self._rows: Any = None  # the permutation of its rows
        self._buffers: list[_Buffer | _Whole] = [
            _Whole(leaf.x, self._prefetcher) if leaf.axis is None else _Buffer(leaf.axis)
            for leaf in leaves
        ]

    def take(self, number: int) -> list[Any]:
        """Return the parts of a result, one for each array. Results are taken in order.

        Raises:
            FailedError: a block could not be read in time, or rows could not be put together.
        """
        if not self._order.shuffled:
            return self._read(number)
        ends = self._order.ends
        at, stop = ends[number - 1] if number else 0, ends[number]
        if stop <= self._end:
            return self._chosen(at, stop)
        pieces = []
        if at < self._end:
            pieces.append(self._chosen(at, self._end))
            at = self._end
        while at < stop:
            self._fill()
            pieces.append(self._chosen(at, min(stop, self._end)))
            at = self._end
        return [
            parts[0] if leaf.axis is None else guarded(leaf, _joined, parts, leaf.axis)
            for leaf, *parts in zip(self._leaves, *pieces, strict=True)
        ]

    # Methods of their own, so that no variable holds a block or a buffer while the next ones are read.

    def _chosen(self, at: int, stop: int) -> list[Any]:
        """Return rows of the window in memory."""
        rows = self._rows[at - self._begin : stop - self._begin]
        parts: list[Any] = []
        try:
            for buffer in self._buffers:
                parts.append(buffer.take(rows))
        except Exception as error:
            leaf = self._leaves[len(parts)]
            if leaf.axis is None:  # no rows of it are put together
                raise
            raise FailedError(error, leaf.path) from error
        return parts

    def _clear(self, length: int) -> None:
        for buffer in self._buffers:
            buffer.clear(length)

    def _add(self, parts: list[Any]) -> None:
        for leaf, buffer, x in zip(self._leaves, self._buffers, parts, strict=True):
            guarded(leaf, buffer.add, x)

    def _fill(self) -> None:
        """Read the next window into the buffers, whose rows are used up."""
        first, last, start, stop = self._order.windows[self._window]
        self._clear(stop - start)
        for step in range(first, last):
            self._add(self._read(step))
        self._rows = self._order.rows(self._window)
        self._begin, self._end = start, stop
        self._window += 1

    def _read(self, step: int) -> list[Any]:
        """Return the parts of a block."""
        try:
            return self._prefetcher.take(step - self._skipped)
        except FailedError as error:
            error.block = self._order.steps[step]
            raise

    def abandon(self) -> None:
        """Let the process end without waiting for reads that hang."""
        self._prefetcher.abandon()

    def close(self) -> None:
        """Cancel the reads that have not ended."""
        self._prefetcher.close()
        self._leaves, self._buffers = [], []


class _Whole:
    """An array that is a part of every result as it is."""

    def __init__(self, x: Any, prefetcher: Prefetcher) -> None:
        self._x = x
        self._prefetcher = prefetcher

    def clear(self, length: int) -> None:
        """Do nothing: it belongs to every window."""

    def add(self, x: Any) -> None:
        """Do nothing: it belongs to every block."""

    def take(self, rows: Any) -> Any:
        """Return the array."""
        return self._prefetcher.own(self._x)


class _Buffer:
    """The blocks of a window, one after another. Those of NumPy are copied into one array as they come.

    Args:
        axis: along which they are joined.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._length = self._filled = 0
        self._array: Any = None
        self._pieces: list[Any] = []

    def clear(self, length: int) -> None:
        """Begin a window of some rows. Those of the last one are not needed any more, and their memory is reused."""
        self._length, self._filled = length, 0
        self._pieces = []

    def add(self, x: Any) -> None:
        """Add a block."""
        import numpy as np

        length = x.shape[self._axis]
        if type(x) is np.ndarray and length < self._length and not self._pieces:
            if not self._filled:
                self._reserve(x)
            if self._fits(x):
                self._array[self._rows(self._filled, self._filled + length)] = x
                self._filled += length
                return
        if self._filled:
            self._pieces.append(self._array[self._rows(0, self._filled)])
        self._filled, self._array = 0, None
        self._pieces.append(x)

    def _reserve(self, x: Any) -> None:
        """Make room for all blocks, unless the last window left enough."""
        import numpy as np

        if self._array is None or not self._fits(x) or self._array.shape[self._axis] < self._length:
            self._array = None  # first, so that its memory is free
            shape = (*x.shape[: self._axis], self._length, *x.shape[self._axis + 1 :])
            self._array = np.empty(shape, x.dtype)

    def _rows(self, start: int, stop: int) -> Any:
        return (*[slice(None)] * self._axis, slice(start, stop))

    def _fits(self, x: Any) -> bool:
        shape, own = list(x.shape), list(self._array.shape)
        del shape[self._axis], own[self._axis]
        return bool(x.dtype == self._array.dtype) and shape == own

    def take(self, rows: Any) -> Any:
        """Return some rows, in memory of their own."""
        if not self._pieces:
            return self._array.take(rows, self._axis)
        import numpy as np

        self._pieces = [_joined(self._pieces, self._axis)]
        x = self._pieces[0]
        if isinstance(x, np.ndarray):  # also a masked one
            return x.take(rows, axis=self._axis)
        import array_api_compat

        xp = array_api_compat.array_namespace(x)
        return xp.take(x, xp.asarray(rows), axis=self._axis)


def _joined(pieces: list[Any], axis: int) -> Any:
    return pieces[0] if len(pieces) == 1 else concatenated(pieces, axis)
