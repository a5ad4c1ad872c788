"""Rows on many registered backends, and on many threads."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from row import Check, Row, microseconds
from timing import Block, Statement, fastest, fastest_block
from ways import tree

import arrayferry as af

__all__ = ["backends_rows", "threads_rows"]

COUNTS = (5, 50, 500)
THREADS = 8
CALLS = 2_000


class MadeUp(af.Backend):
    """A made-up library whose arrays wrap a NumPy array."""

    def __init__(self, index: int) -> None:
        self.name = self.package = f"made_up_{index}"
        self.array_types = (f"{self.name}.Array",)
        module = types.ModuleType(self.name)
        module.Array = type("Array", (), {"__slots__": ("values",)})  # type: ignore[attr-defined]
        self.cls: Any = module.Array
        sys.modules[self.name] = module

    @property
    def installed(self) -> bool:
        """Always true, without a search."""
        return True

    def to_numpy(self, x: Any) -> Any:
        """Return the wrapped array."""
        return x.values

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        """Wrap an array."""
        made = self.cls()
        made.values = x
        return made


class DirectConverter(af.Converter):
    """A direct converter from one made-up library to the next."""

    cost = "copy"

    def __init__(self, source: MadeUp, target: MadeUp) -> None:
        self.source, self.target = source.name, target.name

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        """Leave every array to the general path."""
        return NotImplemented


class Plugin:
    """Made-up libraries, and a direct converter from each to the next."""

    def __init__(self, backends: list[MadeUp]) -> None:
        self.backends = backends

    def arrayferry_backends(self) -> list[MadeUp]:
        """Return the libraries."""
        return self.backends

    def arrayferry_converters(self) -> list[DirectConverter]:
        """Return the converters."""
        return [
            DirectConverter(a, b) for a, b in zip(self.backends, self.backends[1:], strict=False)
        ]


def _registry(backends: list[MadeUp]) -> Any:
    registry = af.Registry()
    registry.register(Plugin(backends), "the benchmark")
    return registry


def _conversion(registry: Any, target: str) -> af.Conversion:
    return af.Conversion(registry.backend(target), af.Options(), registry)


def backends_rows() -> Iterator[Row]:
    """5, 50 and 500 backends registered."""
    made = [MadeUp(index) for index in range(max(COUNTS))]
    try:
        yield from _repeated(made)
        yield from _first(made)
    finally:
        for backend in made:
            del sys.modules[backend.name]


def _repeated(made: list[MadeUp]) -> Iterator[Row]:
    value = tree("numpy")
    plan_ways, fallback_ways = {}, {}
    for count in COUNTS:
        convert = _conversion(_registry(made[:count]), "torch")
        plan_ways[str(count)] = Statement("f(x)", {"f": convert, "x": value})
        fallback_ways[str(count)] = Statement("f(x)", {"f": convert.slow_path, "x": value})
    for what, ways in (("repeated", plan_ways), ("repeated, without a plan", fallback_ways)):
        times = fastest(ways, seconds=1.5)
        yield Row(
            "5, 50, 500 backends registered",
            f"a tree from numpy to torch, {what}",
            (Check(max(times.values()) / min(times.values()), 1.1, "x, slowest to fastest"),),
            numbers=microseconds(times),
        )


def _first(made: list[MadeUp]) -> Iterator[Row]:
    """The first conversion of a registry, which looks up types and searches for the route."""
    x = made[0].cls()
    x.values = np.ones(4, np.float32)
    took = {}
    for count in COUNTS:
        best = float("inf")
        for _ in range(5):
            convert = _conversion(_registry(made[:count]), made[count - 2].name)
            start = time.perf_counter()
            convert(x)
            best = min(best, time.perf_counter() - start)
        took[str(count)] = best
    yield Row(
        "5, 50, 500 backends registered",
        "the first conversion between two of 500, with its route",
        (Check(took["500"] * 1e3, 50.0, "ms"),),
        f"among 5 {took['5'] * 1e3:.2f} ms",
        microseconds(took),
    )


def threads_rows() -> Iterator[Row]:
    """Eight threads."""
    values = [tree("numpy") for _ in range(THREADS)]
    different = [{f"thread {index}": value, "extra": [index]} for index, value in enumerate(values)]
    different = [{**v, **dict.fromkeys(range(i))} for i, v in enumerate(different)]
    for what, inputs in (("one structure", values), ("a structure each", different)):
        shared = af.converter("torch")
        own = [af.converter("torch") for _ in range(THREADS)]
        for each, value in zip(own, inputs, strict=True):
            for _ in range(4):
                each(value)
                shared(value)
        times = fastest_block(
            {
                "one converter": Block(lambda: None, _together([shared] * THREADS, inputs)),
                "eight converters": Block(lambda: None, _together(own, inputs)),
            },
            seconds=8.0,
        )
        ratio = times["one converter"] / times["eight converters"]
        call = times["one converter"] / (THREADS * CALLS) * 1e6
        checks = (Check(ratio, 1.1, "x eight converters"),)
        yield Row(
            "eight threads sharing one converter",
            f"numpy to torch, {what}",
            checks,
            f"{call:.2f} us a call",
            microseconds(times),
        )


def _together(converts: list[Any], inputs: list[Any]) -> Callable[[], object]:
    """Start all threads at once, wait for them, and check their last results."""

    def work() -> None:
        wrong: list[Any] = []

        def run(convert: Any, value: Any) -> None:
            for _ in range(CALLS):
                result = convert(value)
            expected = _numbers(value)
            if _numbers(result) != expected:
                wrong.append(result)

        threads = [
            threading.Thread(target=run, args=pair) for pair in zip(converts, inputs, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise AssertionError(f"a thread got {wrong[0]}")

    return work


def _numbers(value: Any) -> Any:
    """The same tree, with lists of numbers instead of arrays."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_numbers(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
