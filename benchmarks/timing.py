"""Timing: several ways to do the same thing, interleaved, and the shortest time of each.

Neither pytest-benchmark nor pyperf can interleave: both run all repeats of one way before those of
the next, so a machine that is busy for a while slows one way and not the other, and their ratio is
wrong. Here the ways take turns, in a different order each round, so a disturbance affects all of
them. The inner loop is the standard library's `timeit`, which also disables the garbage collector.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "Block",
    "Statement",
    "fastest",
    "fastest_block",
    "fresh_process",
    "medians",
    "on_one_core",
]

WARM_UP = 40
"""Untimed calls at the start: plans are written and JAX compiles in the first few."""
SAMPLE = 0.0002
"""Minimum seconds per sample, so that the cost of reading the clock does not matter."""
FEWEST_ROUNDS = 5


class Statement(NamedTuple):
    """A Python expression to time, and the values of its names."""

    text: str
    names: dict[str, Any]


class Block(NamedTuple):
    """Work to time as a whole, and untimed work to do before each run."""

    prepare: Callable[[], object]
    work: Callable[[], object]


def fastest(
    ways: dict[str, Statement], seconds: float = 2.0, warm_up: int = WARM_UP
) -> dict[str, float]:
    """Time expressions in turn.

    Args:
        ways: the expressions by name.
        seconds: how long to measure.
        warm_up: how often to evaluate each one first.

    Returns:
        The shortest time of one evaluation of each, in seconds.
    """
    timers = {
        name: timeit.Timer(way.text, globals=dict(way.names, __builtins__=__builtins__))
        for name, way in ways.items()
    }
    counts = {}
    for name, timer in timers.items():
        timer.timeit(warm_up)
        once = min(timer.repeat(3, 1))
        counts[name] = max(1, int(SAMPLE / once))
    best = dict.fromkeys(timers, float("inf"))
    order = list(timers)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < end:
        for name in order:
            took = timers[name].timeit(counts[name]) / counts[name]
            best[name] = min(best[name], took)
        order.append(order.pop(0))
        rounds += 1
    return best


def fastest_block(ways: dict[str, Block], seconds: float = 2.0) -> dict[str, float]:
    """Time larger pieces of work in turn.

    Args:
        ways: the pieces by name.
        seconds: how long to measure.

    Returns:
        The shortest time of each, in seconds.
    """
    best = dict.fromkeys(ways, float("inf"))
    order = list(ways)
    for way in ways.values():
        for _ in range(3):
            way.prepare()
            way.work()
    gc.collect()
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < end:
        for name in order:
            way = ways[name]
            way.prepare()
            gc.disable()
            start = time.perf_counter()
            way.work()
            took = time.perf_counter() - start
            gc.enable()
            best[name] = min(best[name], took)
        order.append(order.pop(0))
        rounds += 1
    return best


def medians(ways: dict[str, Callable[[Any], object]], inputs: Iterable[Any]) -> dict[str, float]:
    """Time calls that need a new input each time.

    Args:
        ways: the calls by name.
        inputs: values that are each passed to one way, all ways in turn.

    Returns:
        The median time of each, in seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    gc.collect()
    gc.disable()
    try:
        for index, value in enumerate(inputs):
            name = names[index % len(names)]
            start = time.perf_counter()
            ways[name](value)
            times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: statistics.median(took) for name, took in times.items()}


def fresh_process(code: str, environment: dict[str, str] | None = None) -> Any:
    """Run code in a fresh interpreter, and parse its last line of output as JSON.

    Modules that are imported after `INSTALLED` in the code are loaded from bytecode, as after an
    installation. The first run compiles them, so ignore its result.
    """
    cache = Path(tempfile.gettempdir()) / "arrayferry-benchmarks"
    compiled = f"import sys; sys.pycache_prefix, sys.dont_write_bytecode = {str(cache)!r}, False"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("INSTALLED", compiled)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return json.loads(done.stdout.splitlines()[-1])


def on_one_core(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Call a function of a module of this folder in a fresh interpreter on one core, and return its times.

    On several cores, JAX hands short programs to another thread. Waking it takes up to 25 us, or nothing for seconds on
    end, so that the same code has ratios between 1.0 and 2.0.
    """
    module, name = function.__module__, function.__name__
    code = (
        f"import os, sys; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"import json, warnings; warnings.simplefilter('ignore')\n"
        f"from {module} import {name}\nprint(json.dumps({name}(*{arguments!r})))"
    )
    times: dict[str, float] = fresh_process(code)
    return times
