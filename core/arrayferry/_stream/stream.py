"""`Stream`: arrays converted block by block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Generic, overload

from arrayferry._conversion.conversion import Conversion
from arrayferry._errors import (
    BlockError,
    BlockTimeoutError,
    ContractError,
    ConversionError,
    CopyRequiredError,
    NotAnArrayError,
    OptionError,
    StructureError,
    describe_error,
)
from arrayferry._plugin.blocks import Blocks, even_lengths
from arrayferry._plugin.call import raise_named
from arrayferry._plugin.origin import Origin
from arrayferry._registry.registry import default_registry
from arrayferry._repr import never_raises
from arrayferry._types import B

from .arrays import StreamedArray, take_apart
from .iteration import Iteration
from .prefetcher import FailedError, LateError, Prefetcher

__all__ = ["Stream"]


class Stream(Generic[B]):
    """Arrays converted block by block. `arrayferry.stream` makes it.

    Iterate over it for the blocks; each iteration starts from the beginning, and closing or leaving it early
    cancels what was asked for. `len(stream)` is the number of blocks, `stream[2:]` and `stream[1::4]` are
    streams of some of them, and `stream[3]` is one block. It can be pickled if its arrays can; in another
    process, the client is replaced by a new one with the same scheduler, even if it was the current client.

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
        conversion: Conversion[Any],
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
        self._leaves, self._layout = take_apart(value, axis)
        self._groups = self._grouped(block, client)
        self.length: int = self._common_length()
        self.bounds: Sequence[tuple[int, int]] = self._cut(block)
        self._numbers = range(len(self.bounds))
        self._refuse_early()

    def _grouped(self, block: int | None, client: Any) -> list[Blocks]:
        """Ask each library how its arrays are read."""
        registry = default_registry()
        members: dict[Any, tuple[Origin, int, list[StreamedArray]]] = {}
        for leaf in self._leaves:
            kind = registry.kind(leaf.x)
            origin = kind.origin
            if leaf.axis is not None and origin is not None and origin.memory == "lazy":
                members.setdefault((origin.name, leaf.axis), (origin, leaf.axis, []))[2].append(
                    leaf
                )
        groups: list[Blocks] = []
        for reader, axis, leaves in members.values():
            try:
                blocks = reader.blocks(
                    [leaf.x for leaf in leaves], axis, block=block, client=client
                )
                if blocks is None:
                    raise NotAnArrayError(
                        f"{reader.name} does not tell how to read its arrays block by block",
                        remedy="Convert them as a whole first, or ask the author of the plugin for blocks().",
                    )
                for number, leaf in enumerate(leaves):
                    leaf.group, leaf.number = len(groups), number
                    leaf.ends = list(itertools.accumulate(map(int, blocks.lengths[number])))
            except Exception as error:
                try:
                    raise_named(reader, "blocks", error)
                except ConversionError as named:
                    named.locate(path=leaves[0].path, source=reader.name)
                    raise
            else:
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
                raise ContractError(
                    f"its blocks have the length {leaf.ends[-1] if leaf.ends else 0} together instead of {length}",
                    method="blocks",
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
        """Raise the errors that are certain before anything is computed."""
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
    def __getitem__(self, index: slice) -> Stream[B]: ...

    @overload
    def __getitem__(self, index: int) -> B: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            part: Stream[B] = Stream.__new__(Stream)
            part.__dict__.update(self.__dict__)
            part.bounds, part._numbers = self.bounds[index], self._numbers[index]
            return part
        at = range(len(self))[index]
        return next(iter(self[at : at + 1]))

    def __iter__(self) -> Iteration[B]:
        """Return an iterator over the blocks. Its `close()`, in any thread, cancels what was asked for."""
        return Iteration(self._open, self._block, len(self.bounds))

    def _open(self) -> Prefetcher:
        copy = self._conversion.options.copy is not False
        return Prefetcher(
            self._groups, self._leaves, self.bounds, self._prefetch, self._timeout, copy
        )

    def _block(self, work: Prefetcher, index: int) -> B:
        """Return one block, converted."""
        number, (start, stop) = self._numbers[index], self.bounds[index]
        which = f"block {number} ({start}:{stop} along the axis of the stream)"
        target = self._conversion.target
        try:
            parts = work.take(index)
        except LateError:
            raise BlockTimeoutError(
                f"{which} did not arrive within {self._timeout} seconds",
                remedy="Pass a longer timeout, or look for what hangs.",
                target=target.name,
                block=number,
                start=start,
                stop=stop,
            ) from None
        except FailedError as failed:
            error = failed.error
            if isinstance(error, MemoryError):
                raise error from None
            raise BlockError(
                f"{which} could not be computed or read ({describe_error(error)})",
                remedy=f"The iteration ends here; stream[{index + 1}:] goes on after it.",
                path=failed.path,
                target=target.name,
                block=number,
                start=start,
                stop=stop,
            ) from error
        try:
            return self._conversion(self._layout.unflatten(parts))  # type: ignore[no-any-return]
        except ConversionError as error:
            error.reason = f"{which}: {error.reason}"
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        value, conversion, axis, prefetch, block, client, timeout = self._arguments
        for blocks in self._groups:
            portable = blocks.portable_client()
            client = client if portable is None else portable
        arguments = (value, conversion, axis, prefetch, block, client, timeout)
        return _restored, (arguments, self.bounds, self._numbers)

    @never_raises
    def __repr__(self) -> str:
        return (
            f"<Stream of {len(self)} blocks, {sum(stop - start for start, stop in self.bounds)} of "
            f"{self.length}, to {self._conversion._name}>"
        )


def _restored(arguments: tuple[Any, ...], bounds: Any, numbers: Any) -> Stream[Any]:
    stream = Stream(*arguments)
    stream.bounds, stream._numbers = bounds, numbers
    return stream


def _itemsize(x: Any) -> int:
    size = getattr(x.dtype, "itemsize", None)
    return size if isinstance(size, int) else 8
