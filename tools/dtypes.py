"""Prints the table of dtypes in docs/reference/types.md, from what is converted: `python tools/dtypes.py`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import arrayferry as af

LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX", "dask": "Dask"}
NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
DTYPES = {name: np.dtype(name) for name in NUMBERS.split()}
DTYPES |= {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn")}
DTYPES |= {"text": np.dtype("U1"), "dates": np.dtype("M8[s]"), "time spans": np.dtype("m8[s]")}


def outcome(x: Any, target: str) -> str:
    """What becomes of an array in a library: a cell."""
    try:
        y = af.convert(x, target)
    except af.UnsupportedDtypeError:
        return "refused"
    if y is x:
        return "itself"
    narrowed = "" if name(x) == name(y) else ", narrowed"
    try:
        af.convert(x, target, copy=False)
    except af.CopyRequiredError:
        return ("computed" if af.route(x, target).computes else "copied") + narrowed
    return "shared" + narrowed


def name(x: Any) -> str:
    """The name of an array's dtype, which PyTorch prefixes."""
    return str(x.dtype).rpartition(".")[2]


def table() -> str:
    """The table: the dtypes of a library that become the same everywhere are one row. The longest is last: "all others"."""
    lines = [f"| from | dtypes | to {' | to '.join(LIBRARIES.values())} |", "|---" * 6 + "|"]
    for source, label in LIBRARIES.items():
        rows: dict[tuple[str, ...], list[str]] = {}
        for dtype in DTYPES:
            original = np.ones(2, int).astype(DTYPES[dtype])
            x = af.convert(original, source, unsupported="keep")
            if af.backend_of(x).name == source and name(x) == name(original):
                rows.setdefault(tuple(outcome(x, each) for each in LIBRARIES), []).append(dtype)
        longest = max(rows.values(), key=len)
        for cells, dtypes in sorted(rows.items(), key=lambda row: row[1] is longest):
            others = "all" if len(rows) == 1 else "all others"
            which = others if dtypes is longest else ", ".join(dtypes)
            lines.append(f"| {label} | {which} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
