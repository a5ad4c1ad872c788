"""Blocks of a stream that are asked for one after another."""

from __future__ import annotations

import os
import threading
from typing import Any

from .iteration import Iteration

__all__ = ["InTurn"]


class InTurn:
    """Keeps the iteration of blocks that are asked for one after another, so that what they share is computed once."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._kept: tuple[int, int, Iteration[Any]] | None = None  # process, next block, iteration
        self._last = -1

    def block(self, stream: Any, at: int) -> Any:
        """Return a block of a stream."""
        with self._turn:
            iteration = self._iteration(stream, at)
            try:
                block = next(iteration)
            except BaseException:
                self._kept = None
                raise
            self._last = at
            if at + 1 == len(stream) or self._kept is None:
                iteration.close()
                self._kept = None
            else:
                self._kept = os.getpid(), at + 1, iteration
            return block

    def _iteration(self, stream: Any, at: int) -> Iteration[Any]:
        """Return the iteration that gives a block next: of all that follow if blocks are asked for in turn."""
        if self._kept is not None:
            process, following, kept = self._kept
            if (process, following) == (os.getpid(), at):
                return kept
            kept.close()
            self._kept = None
        in_turn = at in (0, self._last + 1) and at + 1 < len(stream)
        part = stream._part(slice(at, None if in_turn else at + 1))
        part._prefetch = 0
        iteration: Iteration[Any] = part.__iter__()
        if in_turn:
            self._kept = os.getpid(), at, iteration
        return iteration
