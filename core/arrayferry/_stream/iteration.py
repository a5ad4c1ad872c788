"""`Iteration`: an iterator over the blocks of a stream, which can be closed from any thread."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Generic

from arrayferry._errors import (
    BlockTimeoutError,
    OptionError,
)
from arrayferry._repr import never_raises
from arrayferry._types import B

from .shuffling import Progress

__all__ = ["Iteration"]


class Iteration(Generic[B]):
    """An iterator over the blocks of a stream. It ends after an error.

    Args:
        open_reads: begins to read.
        block: returns a block by its number.
        count: how many blocks there are.
        progress: counts those that were taken.
    """

    def __init__(
        self,
        open_reads: Callable[[], Any],
        block: Callable[[Any, int], B],
        count: int,
        progress: Progress,
    ) -> None:
        self._open = open_reads
        self._block = block
        self._count = count
        self._progress = progress
        self._process: int | None = None  # where it was begun
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._reads: Any = None
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
            if self._closed or self._progress.position >= self._count:
                self.close()
                raise StopIteration
            self._process = os.getpid()
            try:
                block = self._block(self._reads or self._begin(), self._progress.position)
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
            self._progress.position += 1
            return block

    def _begin(self) -> Any:
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
        return (
            f"<Iteration over {self._count} blocks, {self._progress.position} of them taken{ended}>"
        )
