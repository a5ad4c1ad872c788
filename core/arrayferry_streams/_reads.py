"""`Reads`: reads the blocks of a stream in order and in advance. Each part of an array is read only once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

from arrayferry import ArrayFerryError, ContractError, ConversionError, PluginWarning
from arrayferry._utilities.threads import Threads
from arrayferry.extending import describe_error

from ._arrays import StreamedArray, part_of
from ._blocks import Blocks, Reader
from ._errors import BlockTimeoutError

_Part = tuple[StreamedArray, int]
"""A part to read: an array, and the index of one of the blocks into which the array is divided."""


class FailedError(Exception):
    """A block could not be read or assembled.

    The arguments are the cause of the error (None for a timeout), and the path of the array ("" if unknown).
    """


class Arrays(NamedTuple):
    """The arrays of a stream.

    Attributes:
        leaves: the arrays.
        groups: the `Blocks` that read the arrays that are not in memory.
        copy: whether parts of arrays in memory are copied before their conversion.
    """

    leaves: list[StreamedArray]
    groups: list[Blocks]
    copy: bool


@dataclass(eq=False, repr=False)
class Reads:
    """Reads the parts of the arrays for some blocks of a stream, within a context. Its exit cancels pending reads.

    Args:
        arrays: the arrays.
        bounds: the start and stop of each of the blocks.
        prefetch: how many reads are started before they are needed, each in its own thread.
        timeout: seconds to wait for a read, or None for no limit.
    """

    arrays: Arrays
    bounds: Sequence[tuple[int, int]]
    prefetch: int
    timeout: float | None

    def __post_init__(self) -> None:
        self._process = os.getpid()
        self._last: dict[_Part, int] = {}  # for each part, the last step that needs it
        self._reads: list[list[_Part]] = []  # for each read, the parts that it reads
        self._needed: list[int] = []  # for each step, how many reads must be complete
        leaves = [leaf for leaf in self.arrays.leaves if leaf.group is not None]
        for step, (start, stop) in enumerate(self.bounds):
            parts = [(leaf, index) for leaf in leaves for index, *_ in leaf.pieces(start, stop)]
            new_parts = [part for part in parts if part not in self._last]
            self._last.update(dict.fromkeys(parts, step))
            if new_parts:
                self._reads.append(new_parts)
            self._needed.append(len(self._reads))
        self._readers: list[Reader] = []
        self._pool: Threads | None = None
        self._started: list[Future[Any] | None] = []
        self._finished = 0
        self._results: dict[_Part, Any] = {}

    def __enter__(self) -> Reads:
        blocks: Any = None
        try:
            for group_index, blocks in enumerate(self.arrays.groups):
                steps = [self._of_group(read_parts, group_index) for read_parts in self._reads]
                self._readers.append(
                    blocks.open([[(leaf.number, index) for leaf, index in step] for step in steps])
                )
        except BaseException as error:
            self.__exit__(type(error), error, None)
            if isinstance(error, ArrayFerryError) or not isinstance(error, Exception):
                raise
            raise ContractError(
                f"{type(blocks).__name__}.open() raised {describe_error(error)}", method="open"
            ) from error
        if self._reads and (self.prefetch or self.timeout is not None):
            self._pool = Threads(max(self.prefetch, 1), "arrayferry-stream")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # `os` is None if Python exits and has cleared its modules. A forked process must not close
        # the readers of its parent
        if os is None or self._process != os.getpid():
            return
        if kind is not None and issubclass(kind, (KeyboardInterrupt, BlockTimeoutError)):
            for reader in self._readers:  # a read may hang: let Python exit without waiting for it
                self._call_safely(reader, "abandon")
            if self._pool is not None:
                self._pool.abandon()
        for reader in self._readers:
            self._call_safely(reader, "close")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        # drop all arrays, since the traceback of an error may keep this object in memory
        self.arrays = Arrays([], [], copy=True)
        for collection in (self._readers, self._results, self._started, self._reads, self._last):
            collection.clear()

    def _of_group(self, read: list[_Part], group: int) -> list[_Part]:
        return [(leaf, index) for leaf, index in read if leaf.group == group]

    def work(self) -> list[Hashable]:
        """Return a key for each task or block that is computed or read for these blocks. See `Reader.work`."""
        return [
            (group_index, task)
            for group_index, reader in enumerate(self._readers)
            for step in range(len(self._reads))
            for task in reader.work(step)
        ]

    def take(self, step: int) -> list[Any]:
        """Return the parts of a block, one for each array. This must be called for each block, in order.

        Raises:
            FailedError: a part could not be read, or was not read in time.
        """
        num_needed = self._needed[step]
        if self._pool is not None:
            while len(self._started) < min(num_needed + self.prefetch, len(self._reads)):
                self._started.append(self._pool.submit(self._read, len(self._started)))
        while self._finished < num_needed:
            self._finish(self._finished)
            self._finished += 1
        start, stop = self.bounds[step]
        parts = []
        for leaf in self.arrays.leaves:
            try:
                parts.append(self._part(leaf, start, stop))
            except ConversionError:
                raise
            except Exception as error:
                raise FailedError(error, leaf.path) from error
        for part in [part for part in self._results if self._last[part] <= step]:
            del self._results[part]
        return parts

    def _read(self, index: int) -> list[Sequence[Any]]:
        return [reader.read(index) for reader in self._readers]

    def _finish(self, index: int) -> None:
        """Wait for a read, and store its results. `take` deletes them after the last block that needs them."""
        future = self._started[index] if self._pool is not None else None
        if future is not None:
            wait([future], self.timeout)
            if not future.done():
                raise FailedError(None, "")
            self._started[index] = None
        try:
            group_results = self._read(index) if future is None else future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # such as SystemExit, which is not an Exception
            raise FailedError(error, self._path_of(index)) from error
        for group_index, blocks_read in enumerate(group_results):
            wanted_parts = self._of_group(self._reads[index], group_index)
            if len(blocks_read) != len(wanted_parts):
                message = f"{len(blocks_read)} blocks were read instead of {len(wanted_parts)}"
                raise FailedError(TypeError(message), "")
            self._results.update(zip(wanted_parts, blocks_read, strict=True))

    def _path_of(self, index: int) -> str:
        """Return the paths of at most four of the arrays whose parts are read."""
        paths = list(dict.fromkeys(leaf.path for leaf, _ in self._reads[index]))
        return ", ".join(filter(None, paths[:4])) + (" ..." if len(paths) > 4 else "")

    def _part(self, leaf: StreamedArray, start: int, stop: int) -> Any:
        if leaf.axis is None or leaf.group is None:
            return part_of(leaf.x, leaf.axis, start, stop, copy=self.arrays.copy)
        full_slices = (slice(None),) * leaf.axis
        pieces = []
        for index, block_length, piece_slice in leaf.pieces(start, stop):
            x = self._results[leaf, index]
            shape = tuple(getattr(x, "shape", ()))
            if shape[leaf.axis : leaf.axis + 1] != (block_length,):
                raise ValueError(
                    f"it has the shape {shape}, but its length along the axis must be {block_length}"
                )
            if piece_slice.stop - piece_slice.start == block_length == stop - start:
                return x
            pieces.append(x[(*full_slices, piece_slice)])
        return _concatenated(pieces, leaf.axis)

    def _call_safely(self, reader: Reader, method: str) -> None:
        """Call a method that a plugin may have overridden. Warn if it raises an error."""
        try:
            getattr(reader, method)()
        except Exception as error:
            warning_text = f"{type(reader).__name__}.{method}() raised {describe_error(error)}"
            warnings.warn(warning_text, PluginWarning, stacklevel=3)


def _concatenated(pieces: list[Any], axis: int) -> Any:
    """Concatenate parts of blocks in new memory. A view of a part would keep its whole block in memory."""
    import numpy as np

    if any(isinstance(piece, np.ma.MaskedArray) for piece in pieces):
        concatenate: Any = np.ma.concatenate  # numpy.concatenate drops masks
        return concatenate(pieces, axis)
    import array_api_compat

    return array_api_compat.array_namespace(*pieces).concat(pieces, axis=axis)
