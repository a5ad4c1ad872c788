"""Statistics of the work of a collector."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class WorkerStats:
    """Statistics of the work of one worker for a collector.

    Attributes:
        steps: the number of environment steps.
        steps_per_second: the rate since the first segment was requested.
        idle: the fraction of that time in which it did not collect, from 0 to 1.
        weights_age: how many times the weights were updated since those of its last segment.
    """

    steps: int
    steps_per_second: float
    idle: float
    weights_age: int


@dataclass(frozen=True)
class CollectorStats:
    """Statistics of the work of a collector so far.

    Attributes:
        steps: the number of environment steps received.
        segments: the number of segments received, from all groups.
        seconds: the time since the first segment was requested.
        steps_per_second: the rate of all workers together.
        lost: how often a group lost its worker.
        workers: the statistics of each worker, by its address.
    """

    steps: int
    segments: int
    seconds: float
    steps_per_second: float
    lost: int
    workers: dict[str, WorkerStats]


class _Done(NamedTuple):
    """The steps of a worker, the seconds that they took, and the version of the weights of the last ones."""

    steps: int = 0
    seconds: float = 0.0
    version: int = 0


class Counts:
    """Counts the steps and segments that arrive.

    Attributes:
        segments: segments that have arrived.
        lost: how often a group lost its worker.
    """

    def __init__(self) -> None:
        self.segments = 0
        self.lost = 0
        self._began_at: float | None = None
        self._workers: dict[str, _Done] = {}

    def begin(self) -> None:
        """Start to measure the time, once."""
        if self._began_at is None:
            self._began_at = time.perf_counter()

    def add(self, worker: str, steps: int, seconds: float, version: int) -> None:
        """Count a segment.

        Args:
            worker: where it was collected.
            steps: its environment steps.
            seconds: how long it took there.
            version: the version of its weights.
        """
        self.segments += 1
        before = self._workers.get(worker, _Done())
        self._workers[worker] = _Done(before.steps + steps, before.seconds + seconds, version)

    def stats(self, version: int) -> CollectorStats:
        """Return the statistics.

        Args:
            version: the version of the newest weights.
        """
        begun = self._began_at
        seconds = 0.0 if begun is None else time.perf_counter() - begun

        def rate(number: float) -> float:
            return number / seconds if seconds else 0.0

        workers = {
            name: WorkerStats(
                own.steps, rate(own.steps), max(0.0, 1 - rate(own.seconds)), version - own.version
            )
            for name, own in self._workers.items()
        }
        steps = sum(own.steps for own in workers.values())
        return CollectorStats(steps, self.segments, seconds, rate(steps), self.lost, workers)
