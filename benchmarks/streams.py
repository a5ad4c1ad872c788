"""Compare a stream of a large Dask array with computing its blocks by hand, one after another.

    python benchmarks/streams.py           # 4 GiB, in threads and on two worker processes

Each way runs in turn in one process, and the shortest time of each counts. The memory is the sum over this
process and the workers, above what it is when all have imported PyTorch.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import distributed
import psutil
import torch

import arrayferry as af

ROWS = 65_536
"""Rows of a block: 64 MiB of 128 columns of float64."""
COLUMNS = 128


def main() -> None:
    """Measure both ways, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=64, help="blocks of 64 MiB")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    generator = da.random.default_rng(0)
    x = generator.normal(size=(arguments.blocks * ROWS, COLUMNS), chunks=(ROWS, COLUMNS))
    print(f"{x.nbytes / 2**30:g} GiB in {arguments.blocks} blocks to PyTorch")
    _compare("threads", x, None, arguments.repeats)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(__import__, "torch")
        _compare("two worker processes", x, client, arguments.repeats)


def _compare(name: str, x: Any, client: Any, repeats: int) -> None:
    ways: dict[str, Callable[[Any, Any], float]] = {
        "by hand": _by_hand,
        "stream": _stream,
    }
    best = dict.fromkeys(ways, float("inf"))
    peaks = dict.fromkeys(ways, 0.0)
    sums = {}
    for way in ways.values():  # a first use of each
        way(x[: 2 * ROWS], client)
    for _ in range(repeats):
        for way, run in ways.items():
            with _Memory() as memory:
                began = time.perf_counter()
                sums[way] = run(x, client)
                best[way] = min(best[way], time.perf_counter() - began)
            peaks[way] = max(peaks[way], memory.peak)
    for total in sums.values():
        assert abs(sums["by hand"] - total) < 1e-6 * abs(sums["by hand"])
    for way, seconds in best.items():
        print(
            f"{name:22} {way:17} {seconds:7.2f} s   {seconds / best['by hand']:.2f} times by hand   "
            f"{peaks[way] / 2**20:5.0f} MiB above the start"
        )


def _use(batch: torch.Tensor) -> float:
    return float(batch[:, 0].sum())


def _by_hand(x: Any, client: Any) -> float:
    total = 0.0
    for block in x.blocks:
        total += _use(torch.from_numpy(block.compute()))
    return total


def _stream(x: Any, client: Any) -> float:
    return sum(map(_use, af.stream(x, "torch", client=client)))


class _Memory:
    """The largest resident memory of this process and its children, above that at the start."""

    def __enter__(self) -> _Memory:
        self.peak = 0.0
        self._own = psutil.Process()
        self._start = self._now()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _now(self) -> float:
        every = [self._own, *self._own.children(recursive=True)]
        return float(sum(process.memory_info().rss for process in every))

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.peak = max(self.peak, self._now() - self._start)


if __name__ == "__main__":
    main()
