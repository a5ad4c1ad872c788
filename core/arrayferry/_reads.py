"""What a stream reads: its arrays, and the parts of them that are read ahead, in order, each once."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from typing import Any, Generic

from ._api import backend_of
from ._errors import (
    ArrayFerryError,
    BlockTimeoutError,
    ContractError,
    ConversionError,
    NotAnArrayError,
    OptionError,
    PluginWarning,
    describe_error,
)
from ._plugin.blocks import Blocks, Reader
from ._plugin.call import call_backend
from ._plugin.threads import Threads
from ._registry.registry import default_registry
from ._repr import never_raises
from ._tree.kind import Kind
from ._tree.layout import Layout
from ._tree.layout import flatten as flatten_tree
from ._types import B

__all__ = ["FailedError", "Iteration", "LateError", "Part", "Reads", "take_apart"]

_ARRAY = Kind("array")


class Part:
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


def take_apart(value: Any, axis: int) -> tuple[list[Part], Any]:
    """Take a tree apart.

    Returns:
        Its arrays, and its layout.
    """
    arrays, paths, layout = _flattened(value, "")
    if not arrays:
        raise NotAnArrayError(
            f"a value of type {type(value).__name__} holds no array that could be streamed",
            remedy="Pass a Dask array, a Zarr array, a dataset of h5py, an array in memory, or a tree of them.",
        )
    return [_part(x, path, axis) for x, path in zip(arrays, paths, strict=True)], layout


def _flattened(value: Any, prefix: str) -> tuple[list[Any], list[str], Any]:
    """Return the arrays of a tree, their places, and its layout."""
    registry = default_registry()

    def kind_of(x: Any) -> Kind:
        kind = registry.kind(x)
        return _ARRAY if kind.what == "source" or _streamed(x, kind) is not x else kind

    leaves, layout = flatten_tree(value, kind_of, prefix=prefix)
    arrays: list[Any] = []
    paths: list[str] = []
    inner: list[Any] = []  # for each leaf, how many arrays it stands for, and their layout
    for x, path in zip(leaves, layout.paths, strict=True):
        found = _streamed(x, registry.kind(x))
        own, places, within = ([x], [path], None) if found is x else _flattened(found, path)
        arrays += own
        paths += places
        inner.append((len(own), within))
    nested = any(within is not None for _, within in inner)
    return arrays, paths, _Nested(layout, inner) if nested else layout


def _streamed(x: Any, kind: Kind) -> Any:
    return kind.container.streamed(x) if kind.what == "container" and kind.container else x


class _Nested:
    """The layout of a tree of which some leaves stand for trees of arrays.

    Args:
        layout: the layout of the tree.
        inner: for each of its leaves, how many arrays it stands for, and their layout.
    """

    def __init__(self, layout: Layout, inner: list[tuple[int, Any]]) -> None:
        self._layout = layout
        self._inner = inner

    def unflatten(self, arrays: Iterable[Any]) -> Any:
        """Put the tree together around other arrays."""
        rest = iter(arrays)
        leaves = []
        for count, within in self._inner:
            own = list(itertools.islice(rest, count))
            leaves.append(own[0] if within is None else within.unflatten(own))
        return self._layout.unflatten(leaves)


def _part(x: Any, path: str, axis: int) -> Part:
    """Return an array of a tree, if it can be streamed."""
    kind = default_registry().kind(x)
    what = f"a {type(x).__module__}.{type(x).__qualname__}"
    if kind.source is not None and kind.source.memory != "lazy":
        try:
            kind.source.blocks([x], axis)  # which may say what to pass instead
        except ConversionError as error:
            raise error.locate(path=path, source=kind.source.name) from error.__cause__
        raise NotAnArrayError(
            f"{what} cannot be streamed",
            remedy="Convert it first: it is in memory as a whole anyway.",
            path=path,
        )
    shape = getattr(x, "shape", None)
    if not isinstance(shape, tuple):
        raise NotAnArrayError(
            f"{what} has no shape, so it cannot be streamed",
            remedy="Pass what it is computed to, or leave it out.",
            path=path,
        )
    if not shape:
        if (kind.source or kind.backend or backend_of(x)).memory == "lazy":
            raise NotAnArrayError(
                "an array without dimensions cannot be streamed",
                remedy="Convert it by itself first.",
                path=path,
            )
        return Part(x, path, None)
    if not -len(shape) <= axis < len(shape):
        raise OptionError(
            f"axis={axis} is not an axis of an array of shape {shape}"
            + (f" at {path}" if path else ""),
            remedy="Pass an axis that all arrays have.",
        )
    return Part(x, path, axis % len(shape))


class FailedError(Exception):
    """A block could not be read."""

    def __init__(self, error: BaseException, path: str = "") -> None:
        super().__init__()
        self.error = error
        self.path = path


class LateError(Exception):
    """A block was not read in time."""


class Reads:
    """What is read for one iteration: in order, ahead, and each block of an array once.

    Args:
        groups: how the arrays are read.
        leaves: the arrays.
        bounds: the blocks that are asked for.
        prefetch: how many reads are started ahead.
        timeout: seconds to wait for a read, None for no limit.
        copy: whether parts of arrays in memory are copied.
    """

    def __init__(
        self,
        groups: list[Blocks],
        leaves: list[Part],
        bounds: Sequence[tuple[int, int]],
        prefetch: int,
        timeout: float | None,
        copy: bool,
    ) -> None:
        self._leaves = leaves
        self._bounds = bounds
        self._prefetch = prefetch
        self._timeout = timeout
        self._copy = copy
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
        self._pool: Threads | None = None
        self._closing: Future[None] = Future()
        self._started: list[Future[Any] | None] = []
        self._taken = 0
        self._held: dict[Any, Any] = {}
        try:
            for group in range(len(groups)):
                self._readers.append(groups[group].open([read[group] for read in reads]))
        except BaseException as error:
            self.close()
            if isinstance(error, ArrayFerryError) or not isinstance(error, Exception):
                raise
            raise ContractError(
                f"{type(groups[len(self._readers)]).__name__}.open() raised {describe_error(error)}",
                method="open",
            ) from error
        if reads and (prefetch or timeout is not None):
            self._pool = Threads(max(prefetch, 1), "arrayferry-stream")

    def take(self, step: int) -> list[Any]:
        """Return the parts of a block, one for each array.

        Raises:
            FailedError: one could not be read.
            LateError: it took too long.
        """
        needed = self._needed[step]
        if self._pool is not None:
            ahead = min(needed + self._prefetch, len(self._reads))
            while len(self._started) < ahead:
                self._started.append(self._pool.submit(self._read, len(self._started)))
        while self._taken < needed:
            self._hold(self._taken)
            self._taken += 1
        start, stop = self._bounds[step]
        parts = [self._part(leaf, start, stop) for leaf in self._leaves]
        for key in [key for key in self._held if self._last[key] <= step]:
            del self._held[key]
        return parts

    def _read(self, index: int) -> list[Sequence[Any]]:
        return [reader.read(index) for reader in self._readers]

    def _hold(self, index: int) -> None:
        """Wait for a read, and hold what it returned until it is not needed any more."""
        future = self._started[index] if self._pool is not None else None
        try:
            if future is not None:
                self._wait(future)
            found = self._read(index) if future is None else future.result()
        except (KeyboardInterrupt, LateError):
            raise
        except BaseException as error:  # also what would end the process, from a task
            raise FailedError(error, self._path_of(index)) from error
        if future is not None:
            self._started[index] = None
        for group, (wanted, values) in enumerate(zip(self._reads[index], found, strict=True)):
            if len(values) != len(wanted):
                raise FailedError(
                    TypeError(f"{len(values)} blocks were read instead of {len(wanted)}")
                )
            for (number, block), x in zip(wanted, values, strict=True):
                self._held[group, number, block] = x

    def _wait(self, future: Future[Any]) -> None:
        """Wait for a read, or until another thread closes the iteration."""
        if not future.done():
            done, _ = wait_for([future, self._closing], self._timeout, FIRST_COMPLETED)
            if not done:
                raise LateError
            if not future.done():
                raise RuntimeError("it was closed")

    def abandon(self) -> None:
        """Let the process end without what hangs."""
        for reader in self._readers:
            self._guarded(reader, "abandon")
        if self._pool is not None:
            self._pool.abandon()

    def _path_of(self, index: int) -> str:
        """Return the places of the first arrays that a read is for."""
        wanted = {(group, n) for group, each in enumerate(self._reads[index]) for n, _ in each}
        paths = [leaf.path for leaf in self._leaves if (leaf.group, leaf.number) in wanted]
        return ", ".join(filter(None, paths[:4])) + (" ..." if len(paths) > 4 else "")

    def _part(self, leaf: Part, start: int, stop: int) -> Any:
        if leaf.axis is None:
            return self._own(leaf.x)
        before = (slice(None),) * leaf.axis
        if leaf.group is None:
            return self._own(leaf.x[(*before, slice(start, stop))])
        pieces = []
        for block, first, last in leaf.pieces(start, stop):
            x = self._held[leaf.group, leaf.number, block]
            length = leaf.ends[block] - (leaf.ends[block - 1] if block else 0)
            found = tuple(getattr(x, "shape", ()))
            if found[leaf.axis : leaf.axis + 1] != (length,):
                raise FailedError(
                    ValueError(f"it has the shape {found}, not the length {length}"), leaf.path
                )
            if last - first == length == stop - start:
                return x
            pieces.append(x[(*before, slice(first, last))])
        try:
            return _concatenated(pieces, leaf.axis)
        except Exception as error:
            raise FailedError(error, leaf.path) from error

    def _own(self, x: Any) -> Any:
        """Copy a part of an array in memory, unless it never changes or sharing was asked for."""
        if not self._copy:
            return x
        backend = backend_of(x)
        return x if backend.memory == "immutable" else call_backend(backend, "copy", x)

    def close(self) -> None:
        """Cancel what was not read yet."""
        if not self._closing.done():
            self._closing.set_result(None)
        for reader in self._readers:
            self._guarded(reader, "close")
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._held.clear()
        self._started.clear()

    def _guarded(self, reader: Reader, method: str) -> None:
        try:
            getattr(reader, method)()
        except Exception as error:
            warnings.warn(
                f"{type(reader).__name__}.{method}() raised {describe_error(error)}",
                PluginWarning,
                stacklevel=3,
            )


class Iteration(Generic[B]):
    """An iterator over the blocks of a stream. It ends after an error.

    Args:
        open_reads: begins to read.
        block: returns a block by its number.
        count: how many blocks there are.
    """

    def __init__(
        self, open_reads: Callable[[], Reads], block: Callable[[Reads, int], B], count: int
    ) -> None:
        self._open = open_reads
        self._block = block
        self._count = count
        self._next = 0
        self._process: int | None = None  # where it was begun
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._reads: Reads | None = None
        self._closed = False

    def __iter__(self) -> Iteration[B]:
        return self

    def __next__(self) -> B:
        if self._process not in (None, os.getpid()):
            raise OptionError(
                "an iteration over a stream cannot go on in a process that was forked meanwhile",
                remedy="Begin the iteration in that process.",
            )
        with self._turn:
            if self._closed or self._next == self._count:
                self.close()
                raise StopIteration
            self._process = os.getpid()
            try:
                block = self._block(self._reads or self._begin(), self._next)
            except BaseException as error:
                closed = self._closed
                if self._reads is not None and isinstance(
                    error, (BlockTimeoutError, KeyboardInterrupt)
                ):
                    self._reads.abandon()
                self.close()
                if closed and isinstance(error, Exception):  # by another thread
                    raise StopIteration from None
                raise
            self._next += 1
            return block

    def _begin(self) -> Reads:
        reads = self._open()
        with self._state:
            self._reads = reads
            closed = self._closed
        if closed:
            reads.close()
        return reads

    def close(self) -> None:
        """Cancel what was asked for, and end the iteration, from any thread. It does not wait."""
        with self._state:
            self._closed = True
            reads, self._reads = self._reads, None
        if reads is not None and self._process == os.getpid():
            reads.close()

    def __del__(self) -> None:
        if not self.__dict__.get("_closed", True) and self._process == os.getpid():
            with contextlib.suppress(Exception):
                self.close()

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self._closed else ""
        return f"<Iteration over {self._count} blocks, {self._next} of them taken{ended}>"


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
