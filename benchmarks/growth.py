"""Rows on growing bytes, leaves and shapes, and on arrays that need no conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from row import Check, Row, microseconds
from timing import Statement, fastest, medians
from ways import PAIRS, array_in, enter_jax

import arrayferry as af

__all__ = ["identity_rows", "large_rows", "leaves_rows", "ragged_rows"]

LARGE = 64 * 2**20
"""Size of a large array in bytes."""
COUNTS = (10, 100, 1_000, 10_000)


def large_rows() -> Iterator[Row]:
    """Large arrays: sharing 64 MiB, and copying it into JAX."""
    large, small = np.ones(LARGE // 4, np.float32), np.ones(1, np.float32)
    for source, target in (("numpy", "torch"), ("torch", "numpy"), ("jax", "numpy")):
        convert = af.converter(target)
        ways = {
            name: Statement("f(x)", {"f": convert, "x": array_in(source, array)})
            for name, array in (("64 MiB", large), ("4 bytes", small))
        }
        times = fastest(ways, seconds=1.0)
        yield Row(
            "sharing 64 MiB against sharing 4 bytes",
            f"{source} to {target}",
            (Check(times["64 MiB"] / times["4 bytes"], 1.5, "x"),),
            numbers=microseconds(times),
        )
    for source in ("numpy", "torch"):
        value = array_in(source, large)
        names = {"wait": jax.block_until_ready, "array": jnp.array, "f": af.converter("jax")}
        host = "x" if source == "numpy" else "x.numpy()"
        times = fastest(
            {
                "ours": Statement("wait(f(x))", {**names, "x": value}),
                "jnp.array": Statement(f"wait(array({host}))", {**names, "x": value}),
            },
            seconds=4.0,
            warm_up=5,
        )
        yield Row(
            "copying 64 MiB into JAX",
            f"{source} to jax",
            (Check(times["ours"] / times["jnp.array"], 1.15, "x jnp.array"),),
            numbers=microseconds(times),
        )


def flat(source: str, count: int) -> dict[str, Any]:
    """A dict of `count` small arrays."""
    return {f"leaf {index}": _leaf(source, index) for index in range(count)}


def nested(source: str, count: int) -> dict[str, Any]:
    """A dict of dicts of ten small arrays each."""
    return {f"branch {index}": flat(source, 10) for index in range(count // 10)}


def _leaf(source: str, index: int) -> Any:
    return array_in(source, np.full(4, index, np.float32))


def _by_hand(source: str, target: str) -> Callable[[Any], Any]:
    """A handwritten function for a dict of arrays."""
    one = {f"{pair.source} {pair.target}": pair.one for pair in PAIRS}[f"{source} {target}"]
    names: dict[str, Any] = {
        "from_numpy": torch.from_numpy,
        "asarray": np.asarray,
        "enter_jax": enter_jax,
    }
    text = f"lambda v: {{key: {one} for key, x in v.items()}}"
    if target == "jax":
        text = "lambda v: dict(zip(v, enter_jax([x.copy() for x in v.values()])))"
    function: Callable[[Any], Any] = eval(text, names)
    return function


def _keeping_last(convert: Callable[[Any], Any], value: Any) -> Statement:
    """A conversion whose last result is kept until the next, as an agent keeps observations.

    Otherwise the freed memory at the top of the heap is returned to the system, and must be
    requested again. This affects only large trees, but every way to convert them.
    """
    return Statement("kept[0] = f(x)", {"f": convert, "x": value, "kept": [None]})


def leaves_rows() -> Iterator[Row]:
    """Trees of 10, 100, 1,000 and 10,000 leaves."""
    for source, target in (("numpy", "torch"), ("torch", "numpy"), ("numpy", "jax")):
        for shape in (flat, nested):
            convert = af.converter(target)
            values = {count: shape(source, count) for count in COUNTS}
            ways = {str(count): _keeping_last(convert, value) for count, value in values.items()}
            if shape is flat:
                hand = _by_hand(source, target)
                for count in (10, 10_000):
                    ways[f"hand {count}"] = _keeping_last(hand, values[count])
            times = fastest(ways, seconds=3.0, warm_up=4)
            leaf = {name: took / int(name.split()[-1]) for name, took in times.items()}
            note = ", ".join(f"{leaf[str(count)] * 1e6:.2f}" for count in COUNTS) + " us"
            if shape is flat:
                note += f"; by hand {leaf['hand 10000'] / leaf['hand 10']:.2f} x"
            yield Row(
                "trees of 10, 100, 1,000, 10,000 leaves",
                f"{source} to {target}, {'a flat dict' if shape is flat else 'dicts of ten'}",
                (Check(leaf["10000"] / leaf["10"], 1.3, "x per leaf"),),
                note,
                microseconds(leaf),
            )


def ragged_rows() -> Iterator[Row]:
    """A new shape in every call, into JAX."""
    compiled = [0]

    def count(name: str, duration: float, **more: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled[0] += 1

    jax.monitoring.register_event_duration_secs_listener(count)
    convert = af.converter("jax")
    for index in range(8):
        convert(np.ones(index + 1, np.float32))
        convert([np.ones((index + 1, size), np.float32) for size in range(1, 6)])
    shapes = iter((rows, columns) for rows in range(20, 400) for columns in range(20, 40))

    def fresh(leaves: int) -> Any:
        arrays = [np.ones(next(shapes), np.float32) for _ in range(leaves)]
        return arrays if leaves > 1 else arrays[0]

    def ours(value: Any) -> Any:
        before = compiled[0]
        result = convert(value)
        own[0] += compiled[0] - before
        return result

    def each(value: Any) -> Any:
        return [jnp.array(x) for x in value] if type(value) is list else jnp.array(value)

    calls = 60
    for leaves in (1, 5):
        own = [0]
        times = medians(
            {"ours": ours, "jnp.array": each}, [fresh(leaves) for _ in range(2 * calls)]
        )
        yield Row(
            "a new shape in every call, into JAX",
            f"numpy to jax, {leaves} array{'s' if leaves > 1 else ''}",
            (
                Check(times["ours"] / times["jnp.array"], 1.0, "x jnp.array"),
                Check(own[0] / calls, 0.0, "compiles per call"),
            ),
            f"{times['ours'] * 1e6:.0f} us",
            microseconds(times),
        )


def identity_rows() -> Iterator[Row]:
    """Arrays that are already in the target library."""

    def lookup(value: Any, known: dict[type, Any]) -> Any:
        return value if type(value) in known else None

    def lookup_numpy(value: Any, known: dict[type, Any]) -> Any:
        """NumPy arrays may hold objects, which must be searched."""
        return value if type(value) in known and value.dtype.kind != "O" else None

    for name in ("numpy", "torch", "jax"):
        x = _leaf(name, 1)
        arrays = {f"leaf {index}": _leaf(name, index) for index in range(20)}
        here = af.converter(name)
        hand = lookup_numpy if name == "numpy" else lookup
        for value in (x, arrays):
            for _ in range(4):
                result = here(value)
            kept = result is x if value is x else all(result[key] is arrays[key] for key in arrays)
            if not kept:
                raise AssertionError(f"{name} to {name} did not return the same arrays")
        times = fastest(
            {
                "one": Statement("f(x)", {"f": here, "x": x}),
                "one, cpu": Statement("f(x)", {"f": af.converter(name, device="cpu"), "x": x}),
                "lookup": Statement("f(x, known)", {"f": hand, "x": x, "known": {type(x): 1}}),
                "tree": Statement("f(x)", {"f": here, "x": arrays}),
                "tree, lookup": Statement(
                    "{key: f(x, known) for key, x in v.items()}",
                    {"f": hand, "v": arrays, "known": {type(x): 1}},
                ),
            },
            seconds=1.0,
        )
        yield Row(
            "identity: already in the target library",
            f"{name}, one leaf and a dict of twenty",
            (
                Check(times["one"] / times["lookup"], 2.0, "x a function with one lookup"),
                Check(times["tree"] / times["tree, lookup"], 1.5, "x the same in a loop"),
            ),
            f'{times["one"] * 1e6:.2f} us, with device="cpu" {times["one, cpu"] * 1e6:.2f} us',
            microseconds(times),
        )
