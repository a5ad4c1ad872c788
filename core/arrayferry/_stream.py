"""`stream`: arrays that are larger than memory, converted block by block."""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, overload

from ._api import backend_of, conversion_like, kept_conversion
from ._conversion.conversion import Conversion
from ._errors import (
    BlockError,
    BlockTimeoutError,
    ConversionError,
    CopyRequiredError,
    NotAnArrayError,
    OptionError,
    StructureError,
    describe_error,
)
from ._options import Narrowing, Sparse, Unsupported
from ._plugin.backend import Target
from ._plugin.blocks import Blocks, Reader, even_lengths
from ._plugin.origin import Origin
from ._registry.registry import default_registry
from ._tree.kind import Kind
from ._tree.layout import Layout
from ._tree.layout import flatten as flatten_tree

__all__ = ["Stream", "stream"]

_ARRAY = Kind("array")


def stream(
    value: Any,
    to: Target | None = None,
    *,
    like: Any = None,
    device: Any = None,
    axis: int = 0,
    prefetch: int = 2,
    block: int | None = None,
    client: Any = None,
    timeout: float | None = None,
    copy: bool | None = None,
    narrowing: Narrowing = "checked",
    unsupported: Unsupported = "raise",
    sparse: Sparse | None = None,
) -> Stream:
    """Convert arrays that are larger than memory block by block, for a training loop.

    The next blocks are computed or read in other threads, or on a cluster, while the last one is used. Each
    part of the arrays is computed or read once. At most `prefetch` + 2 blocks are in memory: the one in use,
    the next one, and those after it.

    Args:
        value: a Dask array, a Zarr array, an `h5py` dataset, an array in memory, or a tree of them whose lengths
            along the axis are equal. Numbers, text and 0-d arrays in a tree are part of every block.
        to: the target: a name ("torch"), a namespace module or a `Backend`.
        like: an array, or a tree with one, instead of `to` and `device`.
        device: the device of the blocks.
        axis: the axis that is cut into blocks.
        prefetch: how many blocks are computed ahead, 0 for none.
        block: the length of the blocks along the axis; the last one may be shorter. None uses the chunks of
            the array that has most of them, for files as many together as fit into 64 MiB.
        client: a `distributed.Client`, or the address of a scheduler, that computes Dask arrays. None uses
            the current client, or threads if there is none. Files are always read here.
        timeout: seconds to wait for a block, None for no limit.
        copy: as in `convert`. Blocks that are computed or read have memory of their own, so False is an error.
        narrowing: as in `convert`.
        unsupported: as in `convert`.
        sparse: as in `convert`.

    Returns:
        The stream. Each iteration over it begins anew.

    Raises:
        NotAnArrayError: there is nothing in the value that can be streamed.
        OptionError: an option is wrong.
        ConversionError: the arrays differ in length, the target is known to refuse them, or no scheduler is
            reached. While iterating: a block cannot be converted; `BlockError` if it cannot be computed or
            read, which names the block.

    Example:
        >>> import arrayferry as af
        >>> import dask.array as da
        >>> x = da.arange(6, chunks=2, dtype="float32")
        >>> for batch in af.stream({"x": x, "y": x > 2}, "torch"):
        ...     print(batch["x"].tolist(), batch["y"].tolist())
        [0.0, 1.0] [False, False]
        [2.0, 3.0] [False, True]
        [4.0, 5.0] [True, True]
    """
    if like is not None:
        to, device = conversion_like(like, to, device)
    _check_count("prefetch", prefetch, 0)
    _check_count("axis", axis, None)
    if block is not None:
        _check_count("block", block, 1)
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise OptionError(f"timeout={timeout!r} is not valid", remedy="Pass a number of seconds.")
    conversion = kept_conversion(to, device, copy, narrowing, "keep", unsupported, "keep", sparse)
    return Stream(value, conversion, axis, prefetch, block, client, timeout)


def _check_count(option: str, value: Any, least: int | None) -> None:
    if type(value) is not int or (least is not None and value < least):
        at_least = "" if least is None else f" from {least} on"
        raise OptionError(
            f"{option}={value!r} is not valid", remedy=f"Pass a whole number{at_least}."
        )


class _Leaf:
    """An array of a tree.

    Attributes:
        x: the array.
        path: its place.
        axis: the axis that is cut, None if it is part of every block.
        group: the group that reads it, None for an array in memory.
        number: its number in the group.
        ends: where its own blocks end.
    """

    def __init__(self, x: Any, path: str, axis: int | None) -> None:
        self.x = x
        self.path = path
        self.axis = axis
        self.group: int | None = None
        self.number = 0
        self.ends: list[int] = []

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Return which of its own blocks make up a part: number, and begin and end within that block."""
        at = start
        while at < stop:
            block = bisect_right(self.ends, at)
            first = self.ends[block - 1] if block else 0
            end = min(self.ends[block], stop)
            yield block, at - first, end - first
            at = end


class Stream:
    """Arrays converted block by block. `arrayferry.stream` makes it.

    Iterate over it for the blocks; each iteration begins anew, and closing or leaving it early cancels what was
    asked for. `len(stream)` is the number of blocks, `stream[2:]` and `stream[1::4]` are streams of some of
    them, and `stream[3]` is one block. It can be pickled if its arrays can; in another process, a client is
    replaced by a new one with the same scheduler.

    Args:
        value: the arrays.
        conversion: converts a block.
        axis: the axis that is cut.
        prefetch: how many blocks are computed ahead.
        block: the length of blocks, None for that of the chunks.
        client: the cluster that computes blocks.
        timeout: seconds to wait for a block.

    Attributes:
        length: the length of the arrays along the axis.
        bounds: for each block, where it begins and ends along the axis.

    Example:
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
        conversion: Conversion,
        axis: int,
        prefetch: int,
        block: int | None,
        client: Any,
        timeout: float | None,
    ) -> None:
        self._arguments = (value, conversion, axis, prefetch, block, client, timeout)
        self._conversion = conversion
        self._prefetch = prefetch
        self._timeout = timeout
        self._leaves, self._layout = _leaves(value, axis)
        self._groups = self._grouped(block, client)
        self.length = self._common_length()
        self.bounds: Sequence[tuple[int, int]] = self._cut(block)
        self._numbers = range(len(self.bounds))
        self._refuse_early()

    def _grouped(self, block: int | None, client: Any) -> list[Blocks]:
        """Let each library tell how its arrays are read."""
        registry = default_registry()
        members: dict[Any, tuple[Origin, int, list[_Leaf]]] = {}
        for leaf in self._leaves:
            kind = registry.kind(leaf.x)
            origin = kind.source or kind.backend
            if leaf.axis is not None and origin is not None and origin.memory == "lazy":
                members.setdefault((origin.name, leaf.axis), (origin, leaf.axis, []))[2].append(
                    leaf
                )
        groups: list[Blocks] = []
        for reader, axis, leaves in members.values():
            xs = [leaf.x for leaf in leaves]
            try:
                blocks = reader.blocks(xs, axis, block=block, client=client)
            except ConversionError as error:
                error.locate(path=leaves[0].path, source=reader.name)
                raise
            if blocks is None:
                raise NotAnArrayError(
                    f"{reader.name} does not tell how to read its arrays block by block",
                    remedy="Convert them as a whole first, or ask the author of the plugin for blocks().",
                    path=leaves[0].path,
                    source=reader.name,
                )
            for number, leaf in enumerate(leaves):
                leaf.group, leaf.number = len(groups), number
                leaf.ends = list(itertools.accumulate(blocks.lengths[number]))
            groups.append(blocks)
        if client is not None and not any(blocks.uses_client for blocks in groups):
            raise OptionError(
                "client= was given, but nothing here is computed by a cluster",
                remedy="Leave it out, or make Dask arrays first.",
            )
        return groups

    def _common_length(self) -> int:
        cut = [leaf for leaf in self._leaves if leaf.axis is not None]
        if not cut:
            raise NotAnArrayError(
                "there is no array with an axis to cut",
                remedy="Pass an array of one dimension or more, or a tree with one.",
            )
        first, length = cut[0], int(cut[0].x.shape[cut[0].axis])
        for leaf in cut:
            if leaf.x.shape[leaf.axis] != length:
                raise StructureError(
                    f"the arrays have different lengths: {leaf.x.shape[leaf.axis]}, but {length} at "
                    f"{first.path or 'the top'}",
                    remedy="Pass arrays of the same length along the axis.",
                    path=leaf.path,
                )
            if leaf.group is not None and (leaf.ends[-1] if leaf.ends else 0) != length:
                raise ConversionError(
                    f"its blocks have the length {leaf.ends[-1] if leaf.ends else 0} together instead of {length}",
                    remedy="Report this to the author of the plugin.",
                    path=leaf.path,
                )
        return length

    def _cut(self, block: int | None) -> list[tuple[int, int]]:
        """Return where blocks begin and end."""
        if block is None:
            ends = max(
                [leaf.ends for leaf in self._leaves if leaf.group is not None]
                or [
                    list(
                        itertools.accumulate(
                            even_lengths(leaf.x.shape, _itemsize(leaf.x), leaf.axis)
                        )
                    )
                    for leaf in self._leaves
                    if leaf.axis is not None
                ],
                key=len,
            )
        else:
            ends = [*range(block, self.length, block), self.length]
        starts = [0, *ends]
        return [(start, end) for start, end in zip(starts, ends, strict=False) if end > start]

    def _refuse_early(self) -> None:
        """Raise what is known of the arrays before anything is computed."""
        import numpy as np

        if self._groups and self._conversion.options.copy is False:
            raise CopyRequiredError(
                "memory cannot be shared: the blocks are computed or read one by one",
                remedy="Pass copy=None.",
            )

        for leaf in self._leaves:
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
        return len(self.bounds)

    @overload
    def __getitem__(self, index: slice) -> Stream: ...

    @overload
    def __getitem__(self, index: int) -> Any: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            part = Stream.__new__(Stream)
            part.__dict__.update(self.__dict__)
            part.bounds, part._numbers = self.bounds[index], self._numbers[index]
            return part
        at = range(len(self))[index]
        return next(iter(self[at : at + 1]))

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the blocks. Its `close()` cancels what was asked for."""
        return self._blocks()

    def _blocks(self) -> Iterator[Any]:
        process = os.getpid()
        work = _Work(self._groups, self._leaves, self.bounds, self._prefetch)
        try:
            for index in range(len(self.bounds)):
                yield self._block(work, index)
                if os.getpid() != process:
                    raise OptionError(
                        "an iteration over a stream cannot go on in a process that was forked meanwhile",
                        remedy="Begin the iteration in that process.",
                    )
        finally:
            if os.getpid() == process:
                work.close()

    def _block(self, work: _Work, index: int) -> Any:
        """Return one block, converted."""
        number, (start, stop) = self._numbers[index], self.bounds[index]
        which = f"block {number} ({start}:{stop} along the axis of the stream)"
        target = self._conversion.target
        try:
            parts = work.take(index, self._timeout)
        except FutureTimeoutError:
            raise BlockTimeoutError(
                f"{which} did not arrive within {self._timeout} seconds",
                remedy="Pass a longer timeout, or look for what hangs.",
                target=target.name,
                block=number,
                start=start,
                stop=stop,
            ) from None
        except _FailedError as failed:
            error = failed.error
            if isinstance(error, MemoryError):
                raise error from None
            raise BlockError(
                f"{which} could not be computed or read ({describe_error(error)})",
                remedy=f"The stream ends here; stream[{number + 1}:] goes on after it.",
                path=failed.path,
                target=target.name,
                block=number,
                start=start,
                stop=stop,
            ) from error
        try:
            return self._conversion(self._layout.unflatten(parts))
        except ConversionError as error:
            error.reason = f"{which}: {error.reason}"
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        value, conversion, axis, prefetch, block, client, timeout = self._arguments
        if client is not None and not isinstance(client, str):
            client = client.scheduler.address
        arguments = (value, conversion, axis, prefetch, block, client, timeout)
        return _restored, (arguments, self.bounds, self._numbers)

    def __repr__(self) -> str:
        return (
            f"<Stream of {len(self)} blocks, {sum(stop - start for start, stop in self.bounds)} of "
            f"{self.length}, to {self._conversion.target.name}>"
        )


def _restored(arguments: tuple[Any, ...], bounds: Any, numbers: Any) -> Stream:
    found = Stream(*arguments)
    found.bounds, found._numbers = bounds, numbers
    return found


class _FailedError(Exception):
    """A block could not be read."""

    def __init__(self, error: BaseException, path: str = "") -> None:
        super().__init__()
        self.error = error
        self.path = path


class _Work:
    """What is read for one iteration: in order, ahead, and each block of an array once.

    Args:
        groups: how the arrays are read.
        leaves: the arrays.
        bounds: the blocks that are asked for.
        prefetch: how many reads are started ahead.
    """

    def __init__(
        self,
        groups: list[Blocks],
        leaves: list[_Leaf],
        bounds: Sequence[tuple[int, int]],
        prefetch: int,
    ) -> None:
        self._leaves = leaves
        self._bounds = bounds
        self._prefetch = prefetch
        self._last: dict[Any, int] = {}  # the step that needs a block of an array last
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
        self._pool: ThreadPoolExecutor | None = None
        self._started: list[Future[Any] | None] = []
        self._taken = 0
        self._held: dict[Any, Any] = {}
        try:
            for group, blocks in enumerate(groups):
                self._readers.append(blocks.open([read[group] for read in reads]))
        except BaseException:
            self.close()
            raise
        if prefetch and reads:
            self._pool = ThreadPoolExecutor(prefetch, "arrayferry-stream")

    def take(self, step: int, timeout: float | None) -> list[Any]:
        """Return the parts of a block, one for each array.

        Raises:
            _FailedError: one could not be read.
            TimeoutError: it took too long.
        """
        needed = self._needed[step]
        if self._pool is not None:
            ahead = min(needed + self._prefetch, len(self._reads))
            while len(self._started) < ahead:
                self._started.append(self._pool.submit(self._read, len(self._started)))
        while self._taken < needed:
            self._hold(self._taken, timeout)
            self._taken += 1
        start, stop = self._bounds[step]
        parts = [self._part(leaf, start, stop) for leaf in self._leaves]
        for key in [key for key in self._held if self._last[key] <= step]:
            del self._held[key]
        return parts

    def _read(self, index: int) -> list[Sequence[Any]]:
        return [reader.read(index) for reader in self._readers]

    def _hold(self, index: int, timeout: float | None) -> None:
        """Wait for a read, and hold what it returned until it is not needed any more."""
        future = self._started[index] if self._pool is not None else None
        try:
            found = self._read(index) if future is None else future.result(timeout)
            if future is not None:
                self._started[index] = None
        except Exception as error:
            if isinstance(error, FutureTimeoutError) and future is not None and not future.done():
                raise
            raise _FailedError(error, self._path_of(index)) from error
        for group, (wanted, values) in enumerate(zip(self._reads[index], found, strict=True)):
            if len(values) != len(wanted):
                raise _FailedError(
                    TypeError(f"{len(values)} blocks were read instead of {len(wanted)}")
                )
            for (number, block), x in zip(wanted, values, strict=True):
                self._held[group, number, block] = x

    def _path_of(self, index: int) -> str:
        """Return the place of the array that a read is for, "" if there are several."""
        wanted = {(group, n) for group, each in enumerate(self._reads[index]) for n, _ in each}
        paths = [leaf.path for leaf in self._leaves if (leaf.group, leaf.number) in wanted]
        return paths[0] if len(paths) == 1 else ""

    def _part(self, leaf: _Leaf, start: int, stop: int) -> Any:
        if leaf.axis is None:
            return leaf.x
        before = (slice(None),) * leaf.axis
        if leaf.group is None:
            return leaf.x[(*before, slice(start, stop))]
        pieces = []
        for block, first, last in leaf.pieces(start, stop):
            x = self._held[leaf.group, leaf.number, block]
            length = leaf.ends[block] - (leaf.ends[block - 1] if block else 0)
            found = tuple(getattr(x, "shape", ()))
            if found[leaf.axis : leaf.axis + 1] != (length,):
                raise _FailedError(
                    ValueError(f"it has the shape {found}, not the length {length}"), leaf.path
                )
            if last - first == length == stop - start:
                return x
            pieces.append(x[(*before, slice(first, last))])
        try:
            return _concatenated(pieces, leaf.axis)
        except ConversionError as error:
            raise _FailedError(error, leaf.path) from error

    def close(self) -> None:
        """Cancel what was not read yet."""
        for reader in self._readers:
            reader.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._held.clear()
        self._started.clear()


def _concatenated(pieces: list[Any], axis: int) -> Any:
    """Join parts of blocks in memory of their own, so that no part keeps a whole block alive."""
    import numpy as np

    if all(type(piece) is np.ndarray for piece in pieces):
        return np.concatenate(pieces, axis)
    if any(isinstance(piece, np.ma.MaskedArray) for piece in pieces):
        joined: Any = np.ma.concatenate  # numpy.concatenate drops masks
        return joined(pieces, axis)
    import array_api_compat

    return array_api_compat.array_namespace(*pieces).concat(pieces, axis=axis)


def _leaves(value: Any, axis: int) -> tuple[list[_Leaf], Layout]:
    """Take a tree apart."""
    registry = default_registry()

    def kind_of(x: Any) -> Kind:
        kind = registry.kind(x)
        return _ARRAY if kind.what == "source" else kind

    arrays, layout = flatten_tree(value, kind_of)
    if not arrays:
        raise NotAnArrayError(
            f"a value of type {type(value).__name__} holds no array that could be streamed",
            remedy="Pass a Dask array, a Zarr array, a dataset of h5py, an array in memory, or a tree of them.",
        )
    leaves = []
    for x, path in zip(arrays, layout.paths, strict=True):
        kind = registry.kind(x)
        if kind.source is not None and kind.source.memory != "lazy":
            raise NotAnArrayError(
                f"a {type(x).__module__}.{type(x).__qualname__} cannot be streamed",
                remedy="Convert it first: it is in memory as a whole anyway.",
                path=path,
            )
        shape = getattr(x, "shape", None)
        if not isinstance(shape, tuple):
            raise NotAnArrayError(
                f"a {type(x).__module__}.{type(x).__qualname__} has no shape, so it cannot be streamed",
                remedy="Make a dask.array of it first.",
                path=path,
            )
        if not shape:
            lazy = (kind.source or kind.backend or backend_of(x)).memory == "lazy"
            if lazy:
                raise NotAnArrayError(
                    "an array without dimensions cannot be streamed",
                    remedy="Compute it first.",
                    path=path,
                )
            leaves.append(_Leaf(x, path, None))
            continue
        if not -len(shape) <= axis < len(shape):
            raise OptionError(
                f"axis={axis} is not an axis of an array of shape {shape}"
                + (f" at {path}" if path else ""),
                remedy="Pass an axis that all arrays have.",
            )
        leaves.append(_Leaf(x, path, axis % len(shape)))
    return leaves, layout


def _itemsize(x: Any) -> int:
    size = getattr(x.dtype, "itemsize", None)
    return size if isinstance(size, int) else 8
