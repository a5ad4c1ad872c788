"""`Stream`: arrays converted block by block."""

from __future__ import annotations

import operator
import os
import threading
import warnings
import zlib
from collections.abc import Sequence
from copy import copy
from typing import Any, Generic, overload

from arrayferry._conversion.conversion import Conversion
from arrayferry._errors import (
    BlockError,
    BlockTimeoutError,
    ConversionError,
    CopyRequiredError,
    OptionError,
    describe_error,
)
from arrayferry._options import check_count
from arrayferry._repr import never_raises
from arrayferry._types import B

from .arrays import by_file_name, common_length, cut, grouped, take_apart
from .iteration import Iteration, Progress
from .order import Order, Ordering, batch_bounds, linked_blocks
from .prefetcher import FailedError, Reading
from .results import Results

_POSITION = threading.RLock()
"""Held while the position of a stream is read and changed. A fork waits for it, so that it is free in the child."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_POSITION.acquire,
        after_in_parent=_POSITION.release,
        after_in_child=_POSITION.release,
    )


class Stream(Generic[B]):
    """Arrays converted block by block, as returned by `arrayferry.stream`.

    Iterate over it to get the blocks. Each iteration starts from the beginning; closing or leaving it early cancels
    pending requests. `len(stream)` is the number of results, `stream[2:]` and `stream[1::4]` are streams of some of
    the blocks, and `stream[3]` is one block. A stream can be pickled if its arrays can; for a process that
    is spawned, of a `numpy.memmap` only the name of its file is pickled, unless `copy=False`. In another process, the
    client is replaced by a new one for the same scheduler, even if it was the current client.

    Args:
        value: the arrays.
        conversion: converts a block.
        axis: the axis along which the arrays are split.
        prefetch: how many blocks are computed in advance.
        block: the length of the blocks, None for that of the chunks.
        client: the cluster that computes the blocks.
        timeout: seconds to wait for a block.
        ordering: the order and the size of the results.

    Attributes:
        length: the length of the arrays along the axis.
        bounds: where each block begins and ends along the axis; each batch, if nothing is shuffled.

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
        value: Any,
        conversion: Conversion[Any],
        axis: int,
        prefetch: int,
        block: int | None,
        client: Any,
        timeout: float | None,
        ordering: Ordering,
    ) -> None:
        self._value, self._axis, self._block, self._client = value, axis, block, client
        self._ordering = ordering
        self._conversion = conversion
        leaves, self._layout = take_apart(value, axis)
        groups, copies = grouped(leaves, block, client), conversion.options.copy is not False
        self._reading = Reading(leaves, groups, prefetch, timeout, copies)
        self.length: int = common_length(leaves)
        self.bounds: Sequence[tuple[int, int]] = cut(leaves, self.length, block)
        self._runs = linked_blocks(leaves, self.bounds) if ordering.shuffle else []
        if ordering.batch_size is not None and not ordering.shuffle:
            self.bounds = batch_bounds(self.length, ordering.batch_size, ordering.drop_last)
        self._numbers: Sequence[int] = range(len(self.bounds))
        self._shard: tuple[int, int] = (0, 1)
        self._next = Progress(0)  # where the next iteration begins
        self._latest: Progress | None = None
        self._order: tuple[Any, Order] | None = None
        self._layout_sum: int | None = None
        self._refuse_early()

    def _refuse_early(self) -> None:
        """Raise the errors that are certain before anything is computed."""
        import numpy as np

        if not self._reading.copy and (self._reading.groups or self._ordering.shuffle):
            why = (
                "rows are shuffled"
                if self._ordering.shuffle
                else "the blocks are computed or read one by one"
            )
            raise CopyRequiredError(f"memory cannot be shared: {why}", remedy="Pass copy=None.")

        for leaf in self._reading.leaves:
            if leaf.group is None:
                continue
            try:
                dtype = np.dtype(leaf.x.dtype)
            except TypeError:  # of another library
                continue
            try:
                self._conversion(np.empty(0, dtype))
            except ConversionError as error:
                error.locate(path=leaf.path)
                raise

    def __len__(self) -> int:
        return len(self._order_of(self._next.epoch).ends)

    @overload
    def __getitem__(self, index: slice) -> Stream[B]: ...

    @overload
    def __getitem__(self, index: int) -> B: ...

    def __getitem__(self, index: int | slice) -> Any:
        if self._ordering.shuffle or self._ordering.batch_size is not None:
            raise OptionError(
                f"stream[{index!r:.80}] of a stream with shuffle or batch_size",
                remedy="Iterate over it; stream.shard(index, count) is the part of one of several readers.",
            )
        if isinstance(index, slice):
            self._refuse_position()
            return self._part(index)
        at = range(len(self))[index]
        one = self._part(slice(at, at + 1))
        one._reading = self._reading._replace(prefetch=0)
        return next(iter(one))

    def _part(self, index: slice) -> Stream[B]:
        return self._changed(bounds=self.bounds[index], _numbers=self._numbers[index])

    def _refuse_position(self) -> None:
        """Raise if the next iteration does not begin at the first result."""
        if self._next.position:
            raise OptionError(
                f"this stream begins at result {self._next.position}, which means nothing for a part of it",
                remedy="Make the part of a stream that begins at its first result, and load the state of that part "
                "into it. set_epoch() begins at the first result.",
            )

    def _changed(self, **changes: Any) -> Stream[B]:
        """Return a stream of the same arrays that begins at the same epoch, with other attributes."""
        changed: Stream[B] = Stream.__new__(Stream)
        changed.__dict__.update(self.__dict__, _latest=None, _order=None, _layout_sum=None)
        changed.__dict__.update(changes, _next=Progress(self._next.epoch))
        return changed

    def shard(self, index: int, count: int) -> Stream[B]:
        """Return the part for one of several readers, such as the workers of a data loader.

        Together they read each row of an epoch once. If rows are shuffled, all must have the same seed and epoch;
        copies of one stream do. A part may be divided again, such as that of a process among its workers.

        Args:
            index: the number of the reader, from 0.
            count: the number of readers.

        Raises:
            OptionError: there is no such reader, or the stream begins at another result than its first.

        Examples:
            >>> import arrayferry as af
            >>> import numpy as np
            >>> stream = af.stream(np.arange(6), "numpy", block=2)
            >>> [block.tolist() for block in stream.shard(1, 2)]
            [[2, 3]]
        """
        if type(index) is not int or type(count) is not int or not 0 <= index < count:
            raise OptionError(
                f"shard({index!r}, {count!r}): there is no such part",
                remedy="Pass 0 <= index < count.",
            )
        self._refuse_position()
        if not self._ordering.shuffle:
            return self._part(slice(index, None, count))
        part, parts = self._shard
        return self._changed(_shard=(part + parts * index, parts * count))

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, which decides how it is shuffled.

        In one process each iteration begins the next epoch, starting from 0. Copies in workers cannot count epochs:
        call this before each epoch, as with PyTorch's samplers.

        Raises:
            OptionError: it is not an integer of at least 0.
        """
        check_count("epoch", epoch, 0)
        with _POSITION:
            self._next, self._latest = Progress(epoch), None

    def state_dict(self) -> dict[str, int]:
        """Return the position of the most recently started iteration, as plain integers.

        `load_state_dict` of an equal stream continues from there, with the result after the last one taken. After
        `set_epoch`, it is the beginning of that epoch.

        Returns:
            The position, and the stream that it belongs to: the seed, the options, the length of the arrays, and `layout`, a
            checksum of how they are split.
        """
        with _POSITION:
            at = self._latest or self._next
            return {"epoch": at.epoch, "position": at.position, **self._identity()}

    def _identity(self) -> dict[str, int]:
        """Return the numbers that identify this stream in a saved position."""
        ordering, (part, parts) = self._ordering, self._shard
        if self._layout_sum is None:
            split = list(self.bounds), self._runs if ordering.shuffle else None
            self._layout_sum = zlib.crc32(repr(split).encode())
        return {
            "seed": ordering.seed,
            "length": self.length,
            "blocks": len(self.bounds),
            "shuffle": int(ordering.shuffle),
            "buffer_size": ordering.buffer_size or 0,
            "batch_size": ordering.batch_size or 0,
            "drop_last": int(ordering.drop_last),
            "part": part,
            "parts": parts,
            "layout": self._layout_sum,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration continue from a saved position.

        Args:
            state: the result of `state_dict`.

        Raises:
            OptionError: it is not a state, or it belongs to a stream of arrays of another length, of other blocks or
                options, or to another part of this one. The values of arrays are not compared.
        """
        own = self._identity()
        found = {name: _whole(state, name) for name in ("epoch", "position", *own)}
        for name, value in own.items():
            if name != "seed" and found[name] != value:
                differs = f"its {name} is {found[name]}, here it is {value}"
                if name == "layout":  # a checksum
                    differs = "its blocks or chunks are cut in other places"
                raise OptionError(
                    f"the state is of another stream: {differs}",
                    remedy="Make the stream with the same arrays and options, and load the state of a part into that "
                    "part.",
                )
        ordering = self._ordering._replace(seed=found["seed"], is_drawn=False)
        count = len(self._order_of(found["epoch"], ordering).ends)
        if found["position"] > count:
            raise OptionError(
                f"the state is at result {found['position']}, but the stream has {count}",
                remedy="Pass what state_dict() returned.",
            )
        with _POSITION:
            self._ordering = ordering
            self._next, self._latest = Progress(found["epoch"], found["position"]), None

    def _order_of(self, epoch: int, ordering: Ordering | None = None) -> Order:
        """Return the order of an epoch. The last one is kept."""
        key = epoch, ordering or self._ordering
        found = self._order
        if found is None or found[0] != key:
            lengths = [stop - start for start, stop in self.bounds]
            self._order = found = key, Order(lengths, self._runs, key[1], epoch, self._shard)
        return found[1]

    def warn_of_runs(self, stacklevel: int) -> None:
        """Warn if most rows are hardly shuffled, since their blocks are read one after another."""
        longest = max((_rows(self.bounds[run.start : run.stop]) for run in self._runs), default=0)
        windows = self._order_of(self._next.epoch).windows
        most = max((stop - start for _, _, start, stop in windows), default=0)
        if longest > max(2 * most, self.length // 8):
            runs = len(self._runs)
            warnings.warn(
                f"the {self.length} rows are hardly shuffled: {len(self.bounds)} blocks are read in "
                f"{f'{runs} runs' if runs > 1 else 'one run'}, since blocks share chunks of large arrays, and the "
                f"buffer holds {most} of up to {longest} rows. Make block a multiple of the chunks of each array "
                "(rechunk those that have others), or pass a larger buffer_size.",
                stacklevel=stacklevel,
            )

    def __iter__(self) -> Iteration[B]:
        """Return an iterator over the results. Its `close()`, in any thread, cancels pending requests."""
        with _POSITION:
            progress, self._next = self._next, Progress(self._next.epoch + 1)
            self._latest = progress
        order = self._order_of(progress.epoch)
        return Iteration(
            lambda: Results(self._reading, order, self.bounds, progress.position),
            self._result,
            len(order.ends),
            progress,
        )

    def _result(self, results: Results, index: int) -> B:
        """Return one result, converted."""
        try:
            return self._conversion(self._layout.unflatten(results.take(index)))  # type: ignore[no-any-return]
        except FailedError as failed:
            if isinstance(failed.error, MemoryError):
                raise failed.error from None
            raise self._explained(failed, index) from failed.error
        except ConversionError as error:
            which = f"result {index}" if self._ordering.shuffle else self._which(index)
            error.reason = f"{which}: {error.reason}"
            raise

    def _explained(self, failed: FailedError, index: int) -> ConversionError:
        """Return the error for a result that could not be read."""
        error, block = failed.error, failed.block
        why = "" if error is None else f"({describe_error(error)})"
        about: dict[str, Any] = {"path": failed.path, "target": self._conversion.target.name}
        if block is None:
            return ConversionError(
                f"result {index}: its rows could not be put together {why}",
                **about,
            )
        which, about = self._which(block), about | self._place(block)
        if error is None:
            return BlockTimeoutError(
                f"{which} did not arrive within {self._reading.timeout} seconds",
                remedy="Pass a longer timeout, or look for what hangs.",
                **about,
            )
        remedy = "The iteration ends here."
        if self._ordering == Ordering():
            remedy = f"The iteration ends here; stream[{index + 1}:] goes on after it."
        return BlockError(
            f"{which} could not be computed or read {why}",
            remedy=remedy,
            **about,
        )

    def _place(self, block: int) -> dict[str, Any]:
        """Return the number of a block, and where it begins and ends."""
        start, stop = self.bounds[block]
        return {"block": self._numbers[block], "start": start, "stop": stop}

    def _which(self, block: int) -> str:
        return "block {block} ({start}:{stop} along the axis of the stream)".format(
            **self._place(block)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        client = self._client
        for blocks in self._reading.groups:
            portable = blocks.portable_client()
            client = client if portable is None else portable
        from multiprocessing.context import get_spawning_popen

        value = self._value
        if self._reading.copy and get_spawning_popen() is not None:  # a process of this machine
            value = by_file_name(value)
        arguments = (
            value, self._conversion, self._axis, self._reading.prefetch, self._block, client, self._reading.timeout,
            self._ordering,
        )  # fmt: skip
        changed = {name: getattr(self, name) for name in ("bounds", "_numbers", "_shard")}
        return Stream, arguments, {**changed, "_next": copy(self._next)}

    @never_raises
    def __repr__(self) -> str:
        of, shard = self._ordering, self._shard
        what = "blocks" if of.batch_size is None else f"batches of {of.batch_size}"
        rows = _rows(self.bounds)
        if of.shuffle:
            what, order = f"shuffled {what}", self._order_of(self._next.epoch)
            rows = order.windows[-1][3] if order.windows else 0
        part = "" if shard == (0, 1) else f", part {shard[0]} of {shard[1]}"
        if len(self._runs) < len(self.bounds) * of.shuffle:
            runs = len(self._runs)
            part += f", in {runs} independent run{'s' * (runs > 1)}"
        return f"<Stream of {len(self)} {what}, {rows} of {self.length}{part}, to {self._conversion._name}>"


def _rows(bounds: Sequence[tuple[int, int]]) -> int:
    """Return how many rows some blocks have together."""
    return sum(stop - start for start, stop in bounds)


def _whole(state: dict[str, Any], name: str) -> int:
    """Return a number of a state.

    Raises:
        OptionError: it is not a natural number.
    """
    value = state.get(name) if isinstance(state, dict) else None
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise OptionError(
            f"this is no state of a stream: its {name} is {value!r:.80}",
            remedy="Pass what state_dict() returned.",
        )
    return number
