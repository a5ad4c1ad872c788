"""`Streaming` and `Blocks`: how `stream` reads, block by block, arrays that are computed or read on demand."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from arrayferry._utilities.text import never_raises
from arrayferry.extending import Part
from arrayferry.typing import AnyTree

BLOCK_BYTES = 64 * 1024 * 1024
"""The size in bytes of the blocks of arrays that have no chunks, such as arrays in memory."""

HOOK = "arrayferry_blocks"

BlockIndices = Sequence[tuple[int, int]]
"""The blocks to read together. Each block is a pair: the index of an array, and the block's index in this array."""


class Blocks(ABC):
    """The blocks of some arrays along one axis, as returned by `Streaming.blocks`.

    Attributes:
        lengths: for each array, the lengths of its blocks along the axis, in order.
        uses_client: whether a cluster computes the blocks, so that `stream(client=...)` has an effect.
    """

    lengths: Sequence[Sequence[int]]
    uses_client = False

    @abstractmethod
    def read(self, array: int, block: int) -> Any:
        """Return one block, in memory that nothing else writes to. Several threads may call this at the same time.

        Args:
            array: the index of the array.
            block: the index of the block within the array.

        Returns:
            An array of any known library. Its length along the axis is `lengths[array][block]`.
        """

    def portable_client(self) -> Any:
        """Return the client that another process needs to compute the blocks on the same cluster, or None.

        A stream pickles this client. If it is None, the other process chooses a client.

        Raises:
            TypeError: the arrays cannot be pickled. The text of the error says why, and what to do.
        """
        return None

    def open(self, steps: Sequence[BlockIndices]) -> Reader:
        """Return a `Reader`, which may start reading immediately.

        Args:
            steps: for each step, in order, the blocks to read together. No block is in two steps.
        """
        return Reader(self, steps)

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {sum(map(len, self.lengths))} blocks>"


class Reader:
    """Reads blocks, step by step.

    Args:
        blocks: the blocks of the arrays.
        steps: for each step, the blocks to read together.
    """

    def __init__(self, blocks: Blocks, steps: Sequence[BlockIndices]) -> None:
        self._blocks = blocks
        self._steps = steps

    def read(self, step: int) -> Sequence[Any]:
        """Return the blocks of a step. Several threads may call this at the same time, each for a different step."""
        return [self._blocks.read(array, block) for array, block in self._steps[step]]

    def work(self, step: int) -> Iterable[Hashable]:
        """Return a key for each task or block that a step computes or reads.

        If a key occurs for three blocks, a stream warns that calls of `stream[i]` repeat this work.
        """
        return self._steps[step]

    def abandon(self) -> None:
        """Let the process exit without waiting for running reads. It is called before `close` if a read may hang."""

    def close(self) -> None:
        """Stop running reads without waiting for them, and start no more. It may be called during `read`."""

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._steps)} steps>"


class Streaming(Part):
    """How `stream` reads the arrays of a plugin.

    The hook `arrayferry_blocks` returns an instance for a library or a container.

    Attributes:
        name: the name of the backend or source, or the dotted path of the class of the container.

    Examples:
        >>> from arrayferry_streams import Slices, Streaming, even_lengths
        >>> class Files(Streaming):
        ...     name = "myfiles"
        ...     def blocks(self, xs, axis, *, block=None, client=None):
        ...         lengths = [
        ...             even_lengths(x.shape, x.dtype.itemsize, axis, multiple=x.chunks[axis], wanted=block)
        ...             for x in xs
        ...         ]
        ...         return Slices(xs, axis, lengths)
        >>> Files()
        <Streaming myfiles>
    """

    contract = "arrayferry_streams._contract:StreamingTests"

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks | None:
        """Return the blocks of arrays, or None if the arrays are to be sliced in memory.

        `stream` calls this for arrays that are computed or read on demand (`memory` is "lazy"), since only their
        library knows how to read part of them.

        Args:
            xs: the arrays, of the same length along the axis.
            axis: the axis, counted from 0.
            block: the block length that the user requested, or None. The returned blocks may have other lengths,
                since the stream splits and joins them.
            client: the cluster that computes blocks, as passed to `stream`.
        """
        return None

    def streamed(self, value: AnyTree) -> Any:
        """Return a tree of arrays to use in place of a container that cannot be rebuilt from blocks.

        This method must not read data.

        Returns:
            The tree, or the value itself if the container can be rebuilt. The stream then splits the children of the
            container, and rebuilds the container for each block.
        """
        return value


class Slices(Blocks):
    """Blocks of arrays in files, read by slices. A slice of an array must read only that part of the file.

    Args:
        xs: the arrays.
        axis: the axis along which the arrays are split.
        lengths: for each array, the lengths of its blocks.

    Examples:
        >>> import numpy as np
        >>> from arrayferry_streams import Slices
        >>> Slices([np.arange(5)], 0, [[2, 3]]).read(0, 1)
        array([2, 3, 4])
    """

    def __init__(self, xs: Sequence[Any], axis: int, lengths: Sequence[Sequence[int]]) -> None:
        self._xs = xs
        self._axis = axis
        self.lengths = lengths
        self._ends = [list(itertools.accumulate(row)) for row in lengths]

    def read(self, array: int, block: int) -> Any:
        """Read one block by a slice of the array."""
        block_end = self._ends[array][block]
        block_slice = slice(block_end - self.lengths[array][block], block_end)
        return self._xs[array][(*(slice(None),) * self._axis, block_slice)]


def even_lengths(
    shape: Sequence[int], itemsize: int, axis: int, *, multiple: int = 1, wanted: int | None = None
) -> list[int]:
    """Return block lengths along an axis, which are equal except for the last. By default, blocks have up to 64 MiB.

    Args:
        shape: the shape of the array.
        itemsize: the size of an element in bytes.
        axis: the axis.
        multiple: the number that divides all lengths except the last, such as the length of a chunk in a file. A
            block has at least this length, even if it is larger than 64 MiB.
        wanted: the block length that the user requested, or None for up to 64 MiB. It is rounded up to a multiple
            of `multiple`.
    """
    length = shape[axis]
    if not length:
        return []
    row_bytes = itemsize * math.prod(shape) // length
    num_rows = wanted or max(1, BLOCK_BYTES // max(row_bytes, 1))
    num_multiples = max(1, math.ceil(num_rows / multiple) if wanted else num_rows // multiple)
    block_length = min(num_multiples * multiple, length)
    return [min(block_length, length - start) for start in range(0, length, block_length)]
