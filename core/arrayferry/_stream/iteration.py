"""`Iteration`: an iterator over the blocks of a stream, which can be closed from any thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Generic

from arrayferry._errors import BlockTimeoutError, OptionError
from arrayferry._forks import process
from arrayferry._repr import never_raises
from arrayferry._types import B


class Progress:
    """How far an iteration has come.

    Attributes:
        epoch: its epoch.
        position: how many results were taken.
    """

    def __init__(self, epoch: int, position: int = 0) -> None:
        self.epoch = epoch
        self.position = position


class Iteration(Generic[B]):
    """An iterator over the blocks of a stream. It ends after an error.

    Args:
        open_results: returns the `Results`, which begin to read.
        take_result: returns a result by its number.
        count: how many results there are.
        progress: counts those that were taken.
    """

    def __init__(
        self,
        open_results: Callable[[], Any],
        take_result: Callable[[Any, int], B],
        count: int,
        progress: Progress,
    ) -> None:
        self._open = open_results
        self._take_result = take_result
        self._count = count
        self._progress = progress
        self._process: int | None = None  # the process that began it
        self._turn = threading.RLock()
        self._state = threading.RLock()  # a signal handler may close it
        self._results: Any = None
        self._closed = False

    def __iter__(self) -> Iteration[B]:
        return self

    def __next__(self) -> B:
        if self._process is None:
            # before a lock is held, which a forked process could not release
            self._process = process.forks
        elif self._process != process.forks:
            raise OptionError(
                "an iteration over a stream cannot go on in a process that was forked meanwhile",
                remedy="Begin the iteration in that process.",
            )
        at = None
        try:
            with self._turn:
                if self._closed or self._progress.position >= self._count:
                    self.close()
                    raise StopIteration
                at = self._progress.position
                try:
                    block = self._take_result(self._results or self._begin(), at)
                except BaseException as error:
                    if self._ended_elsewhere(error):
                        raise StopIteration from None
                    raise
                self._progress.position = at + 1
                return block
        except BaseException:
            # the result did not arrive, and the reads cannot give it again
            if at is not None:
                self.close()
                if self._progress.position == at + 1:
                    self._progress.position = at
            raise

    def _ended_elsewhere(self, error: BaseException) -> bool:
        """End the iteration after an error. Tell whether it is due to another thread that has closed it."""
        closed, results = self._closed, self._results
        if results is not None and isinstance(error, (BlockTimeoutError, KeyboardInterrupt)):
            results.abandon()
        self.close()
        return closed and isinstance(error, Exception)

    def _begin(self) -> Any:
        results = self._open()
        with self._state:
            self._results = results
            closed = self._closed
        if closed:
            results.close()
        return results

    def close(self) -> None:
        """Cancel pending requests and end the iteration, from any thread. It does not wait."""
        if self._process not in (None, process.forks):  # its locks are those of another process
            self._closed = True
            return
        with self._state:
            self._closed = True
            results, self._results = self._results, None
        if results is not None:
            results.close()

    def __del__(self) -> None:
        if not self.__dict__.get("_closed", True) and self._process == process.forks:
            with contextlib.suppress(Exception):
                self.close()

    @never_raises
    def __repr__(self) -> str:
        ended = ", closed" if self._closed else ""
        return (
            f"<Iteration over {self._count} blocks, {self._progress.position} of them taken{ended}>"
        )
