"""`Stream`: a sequence of blocks of arrays, each converted when it is needed."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

from arrayferry import Conversion, ConversionError, OptionError, registry
from arrayferry._utilities.cache import Cache
from arrayferry._utilities.compilers import uncompiled
from arrayferry._utilities.text import never_raises
from arrayferry.extending import copy_required, describe_error, map_arrays
from arrayferry.typing import AnyArray, AnyTree

from ._arrays import by_file_name, common_length, cut, grouped, take_apart
from ._errors import BlockError, BlockTimeoutError
from ._reads import Arrays, FailedError, Reads

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it, even if it is not installed

    B = TypeVar("B", default=Any, covariant=True)
else:
    from typing import TypeVar

    B = TypeVar("B", covariant=True)


@uncompiled
class Stream(Generic[B]):
    """A sequence of blocks of arrays, as returned by `arrayferry.stream`.

    `len(stream)` is the number of blocks, `stream[3]` is one block, and `stream[2:]` and `stream[1::4]` are streams of
    some of the blocks. An iteration reads ahead, and computes each part of the arrays once. Leaving the loop early
    cancels pending reads. A stream is a map-style dataset of PyTorch, so data loaders shuffle, divide and resume it.

    A stream can be pickled if its arrays can. For a spawned process, a `numpy.memmap` is pickled as the name of its
    file, unless `copy=False`. The process that unpickles a stream makes a new client for the same scheduler, even if
    the stream used the current client. For TLS, a pickle contains the names of certificate and key files, but no keys.

    Args:
        value: the arrays.
        conversion: converts a block.
        axis: the axis along which the arrays are split.
        prefetch: how many blocks are computed in advance.
        block: the length of the blocks, or None for the length of the chunks.
        client: the client of the cluster that computes the blocks, the address of its scheduler, or None.
        timeout: seconds to wait for a block, or None for no limit.

    Attributes:
        length: the length of the arrays along the axis.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> stream = af.stream(np.arange(5), "torch", block=2)
        >>> len(stream), stream[-1]
        (3, tensor([4]))
        >>> [block.tolist() for block in stream[1:]]
        [[2, 3], [4]]
    """

    def __init__(
        self,
        value: AnyTree,
        conversion: Conversion[Any],
        axis: int,
        prefetch: int,
        block: int | None,
        client: Any,
        timeout: float | None,
    ) -> None:
        self._arguments = value, conversion, axis, prefetch, block, client, timeout
        self._conversion = conversion
        self._prefetch, self._timeout = prefetch, timeout
        leaves, self._layout = take_apart(value, axis, conversion, block)
        groups, must_copy = grouped(leaves, block, client), conversion.options.copy is not False
        self._arrays = Arrays(leaves, groups, must_copy)
        self.length: int = common_length(leaves)
        self._cuts = cut(leaves, self.length, block)
        self._numbers = range(len(self._cuts))  # indices in `_cuts` of the blocks of this stream
        self._repeated = _Repeated()
        self._refuse_early()

    def _refuse_early(self) -> None:
        """Raise errors that can be detected before anything is computed."""
        import numpy as np

        if not self._arrays.copy and self._arrays.groups:
            raise copy_required("the blocks are computed or read one by one")
        self._layout.unflatten([leaf.x for leaf in self._arrays.leaves])
        for leaf in self._arrays.leaves:
            if leaf.group is None:
                continue
            try:
                dtype = np.dtype(leaf.x.dtype)
            except TypeError:  # NumPy does not know this dtype of another library
                continue
            try:
                self._conversion(np.empty(0, dtype))
            except ConversionError as error:
                error.source = getattr(registry.kind(leaf.x).origin, "name", "")
                raise error.locate(path=leaf.path) from error.__cause__

    def state_dict(self) -> dict[str, list[str]]:
        """Return a description of the blocks and rows. It must be the same when a data loader is resumed."""
        part_text = "" if self._numbers == range(len(self._cuts)) else f", those of {self._numbers}"
        return {"data": [f"{len(self)} blocks{part_text}", f"{self.length} rows"]}

    def load_state_dict(self, state: dict[str, list[str]]) -> None:
        """Check that a result of `state_dict` describes this stream. `StatefulDataLoader` calls both methods.

        Raises:
            OptionError: the blocks or the number of rows differ.
        """
        saved_text, current_text = ", ".join(state["data"]), ", ".join(self.state_dict()["data"])
        if saved_text != current_text:
            raise OptionError(
                f"the saved state has {saved_text} where this stream has {current_text}, so rows would be lost or repeated",
                remedy="Use the same arrays, block= and slice of the stream as in the saved run, or begin a new epoch.",
            )

    @property
    def bounds(self) -> Sequence[tuple[int, int]]:
        """The start and stop of each block along the axis."""
        return [self._cuts[number] for number in self._numbers]

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: slice) -> Stream[B]: ...

    @overload
    def __getitem__(self, index: int) -> B: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            part_stream: Stream[B] = Stream.__new__(Stream)
            part_stream.__dict__.update(self.__dict__, _numbers=self._numbers[index])
            return part_stream
        block_number = self._numbers[index]
        with Reads(self._arrays, [self._cuts[block_number]], 0, self._timeout) as reads:
            if self._repeated.note(reads.work(), block_number):
                warnings.warn(
                    f"stream[{index}] computes or reads for the third time what several blocks need, since stream[i] "
                    "stores no results for other blocks. Iterate over the stream, which does this work once. Or "
                    "persist what blocks share, such as a mean (x.persist(), or x[:] of a file), and let each block "
                    "consist of whole chunks: leave out block=, or rechunk.",
                    stacklevel=2,
                )
            return self._block(reads, 0, block_number, "")

    def __iter__(self) -> Iteration[B]:
        """Return an iterator over the blocks. Its method `close` cancels pending reads."""
        return Iteration(self._blocks())

    def _blocks(self) -> Generator[B]:
        with Reads(self._arrays, self.bounds, self._prefetch, self._timeout) as reads:
            for step, block_number in enumerate(self._numbers):
                remedy = (
                    f"The iteration ends here. stream[{step + 1}:] has the blocks after this one."
                )
                yield self._block(reads, step, block_number, remedy)

    def _block(self, reads: Reads, step: int, number: int, remedy: str) -> B:
        """Return a block, converted to the target.

        Args:
            reads: reads the parts of the block.
            step: the index of the block in `reads.bounds`.
            number: the index of the block in `_cuts`.
            remedy: what to do if the block cannot be read.
        """
        start, stop = self._cuts[number]
        block_text = f"block {number} ({start}:{stop} along the axis of the stream)"
        try:
            parts = reads.take(step)
            block = self._conversion(self._layout.unflatten(parts))
        except FailedError as failed_error:
            (cause, path), target = failed_error.args, self._conversion.target.name
        except ConversionError as error:
            error.reason = f"{block_text}: {error.reason}"
            raise
        else:
            any_foreign = any(type(x).__module__ != "numpy" for x in parts)
            if any_foreign and self._arrays.copy and self._conversion.target.name == "numpy":
                block = map_arrays(_writable, block)
            return block  # type: ignore[no-any-return]
        if isinstance(cause, MemoryError):
            raise cause
        facts: Any = {"block": number, "start": start, "stop": stop, "path": path, "target": target}
        if cause is None:
            message = f"{block_text} did not arrive within {self._timeout:g} seconds"
            remedy = "Pass a longer timeout, or find out why the block takes so long."
            raise BlockTimeoutError(message, remedy=remedy, **facts)
        message = f"{block_text} could not be computed or read ({describe_error(cause)})"
        raise BlockError(message, remedy=remedy, **facts) from cause

    def __reduce__(self) -> tuple[Any, ...]:
        from multiprocessing.context import get_spawning_popen

        value, *other_arguments, client, timeout = self._arguments
        for blocks in self._arrays.groups:
            portable_client = blocks.portable_client()
            client = client if portable_client is None else portable_client
        # a spawned process runs on this machine, and so can map the same files
        if self._arrays.copy and get_spawning_popen() is not None:
            value = by_file_name(value)
        return Stream, (value, *other_arguments, client, timeout), {"_numbers": self._numbers}

    @never_raises
    def __repr__(self) -> str:
        num_rows = sum(stop - start for start, stop in self.bounds)
        conversion_name = self._conversion._name
        return f"<Stream of {len(self)} blocks, {num_rows} of {self.length}, to {conversion_name}>"


def _writable(x: AnyArray) -> Any:
    """Copy a NumPy array that is read-only, such as a view of an array of JAX. Return all other arrays unchanged."""
    return x if getattr(getattr(x, "flags", None), "writeable", True) else x.copy("K")


class Iteration(Generic[B]):
    """An iterator over the blocks of a stream, which ends after an error. Several threads may share the iterator.

    Args:
        blocks: yields the blocks.
    """

    def __init__(self, blocks: Generator[B]) -> None:
        self._blocks = blocks
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._ended = False

    def __iter__(self) -> Iteration[B]:
        return self

    def __next__(self) -> B:
        if self._process != os.getpid():
            raise OptionError(
                "an iteration over a stream began before this process was forked, and cannot continue in it",
                remedy="Begin a new iteration in this process.",
            )
        try:
            with self._lock:
                if self._ended:
                    self._blocks.close()
                    raise StopIteration
                return next(self._blocks)
        except BaseException:
            # also end the iteration after a KeyboardInterrupt, since a block may be lost
            self._ended = True
            raise

    def close(self) -> None:
        """End the iteration, and cancel pending reads. If another thread is reading a block, wait for it."""
        with self._lock:
            self._blocks.close()


class _Repeated:
    """Detects whether several calls of `stream[i]` repeat the same work."""

    def __init__(self) -> None:
        self._blocks: Cache[Hashable, set[int]] = Cache(10_000)
        self._warned = False

    def note(self, work: Iterable[Hashable], block: int) -> bool:
        """Record the keys of the work for a block (see `Reader.work`).

        Return True if one of the keys was recorded for two other blocks. After the first True, return False.
        """
        for task in () if self._warned else work:
            noted_blocks = self._blocks.get(task)
            if noted_blocks is None:
                self._blocks[task] = noted_blocks = set()
            noted_blocks.add(block)
            if len(noted_blocks) > 2:
                self._warned = True
                return True
        return False
