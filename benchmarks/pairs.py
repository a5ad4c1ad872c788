"""Rows on the six pairs of NumPy, PyTorch and JAX, and on adapters around environments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments import SETTINGS, acting
from row import Check, Row, microseconds
from timing import fastest, fresh_process
from ways import PAIRS, one_array, tree, ways

__all__ = ["ADAPTERS", "ONE", "TREE", "adapter_rows", "one_rows", "tree_rows"]

TREE = "a tree of five arrays and a string"
ONE = "one small array"
ADAPTERS = "what an adapter adds to a step"

STEP = """
import json, sys, warnings
sys.path.insert(0, {folder!r})
warnings.simplefilter("ignore")
import jax
# JAX runs some work in another thread. Its wake-up time is random, and exceeds what an adapter adds.
jax.config.update("jax_cpu_enable_async_dispatch", False)
import environments
print(json.dumps(environments.measure({what!r}, seconds=8.0)))
"""

TREE_BY_HAND, TREE_FASTER = 1.25, 4.0
ONE_BY_HAND, ONE_FASTER = 1.65, 2.3
ONE_INTO_JAX = 1.35
ADDED_BY_HAND, ADDED_FASTER = 2.0, {"NumpyToTorch over 64 CartPoles": 3.0}
ACTING_BY_HAND = 1.05


def tree_rows() -> Iterator[Row]:
    """Trees of five arrays and a string, six pairs."""
    yield from _pair_rows(TREE, tree, TREE_BY_HAND, TREE_FASTER)


def one_rows() -> Iterator[Row]:
    """One small array, six pairs."""
    yield from _pair_rows(ONE, one_array, ONE_BY_HAND, ONE_FASTER, ONE_INTO_JAX)


def _pair_rows(
    section: str, value: Any, by_hand: float, faster: float, into_jax: float | None = None
) -> Iterator[Row]:
    for pair in PAIRS:
        limit = into_jax if into_jax is not None and pair.target == "jax" else by_hand
        times = fastest(ways(pair, value(pair.source)), seconds=3.0)
        ours, hand = times["ours"], times["hand"]
        note = f"convert() {times['convert'] / hand:.2f}"
        if "bare" in times:
            note += f", by hand without the copy {times['bare'] / hand:.2f}"
        yield Row(
            section,
            str(pair),
            (
                Check(ours / hand, limit, "x by hand"),
                Check(times["peer"] / ours, faster, "x faster than Gymnasium", "at least"),
            ),
            note,
            microseconds(times),
        )


def adapter_rows() -> Iterator[Row]:
    """Adapters around a CartPole, 64 CartPoles, and 64 environments in JAX."""
    for what in SETTINGS:
        step = fresh_process(STEP.format(folder=str(Path(__file__).parent), what=what))
        added = {name: step[name] - step["bare"] for name in ("ours", "peer", "hand")}
        yield Row(
            ADAPTERS,
            what,
            (
                Check(added["ours"] / added["hand"], ADDED_BY_HAND, "x by hand"),
                Check(
                    added["peer"] / added["ours"],
                    ADDED_FASTER.get(what, 3.5),
                    "x less than Gymnasium",
                    "at least",
                ),
            ),
            f"{added['ours'] * 1e6:.1f} us on a step of {step['bare'] * 1e6:.1f} us, by hand "
            f"{added['peer'] / added['hand']:.2f} x less",
            microseconds({"step": step["bare"], **added}),
        )
    times = acting(4.0)
    check = Check(times["ours"] / times["hand"], ACTING_BY_HAND, "x by hand")
    what = "a loop of an agent in PyTorch over 16 CartPoles"
    yield Row(ADAPTERS, what, (check,), "", microseconds(times))
