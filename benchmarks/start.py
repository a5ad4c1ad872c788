"""Rows on startup: the import and the first conversion, each in a fresh interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator

from row import Check, Row
from timing import fresh_process

__all__ = ["first_rows", "import_rows"]

LIBRARIES = ("numpy", "torch", "jax", "cupy", "dask")

IMPORT = """
import time
INSTALLED
start = time.perf_counter()
import {module}
took = time.perf_counter() - start
import json, sys
print(json.dumps([took, [name for name in {libraries} if name in sys.modules]]))
"""

FIRST = """
import json, time
import numpy
x = numpy.ones(4, numpy.float32)
{warm_up}
INSTALLED
start = time.perf_counter()
import arrayferry
imported = time.perf_counter()
convert = arrayferry.converter("{target}")
made = time.perf_counter()
convert(x)
done = time.perf_counter()
print(json.dumps([imported - start, made - imported, done - made]))
"""

WARM_UP = {
    "numpy": "",
    "torch": "import torch; torch.from_numpy(x)",
    "jax": "import jax, jax.numpy; jax.device_put(x); jax.numpy.array(x); jax.devices()",
}


def import_rows() -> Iterator[Row]:
    """The import, against that of array-api-compat."""
    best = {"arrayferry": float("inf"), "array_api_compat": float("inf")}
    loaded: list[str] = []
    for run in range(12):
        for module in best:
            took, found = fresh_process(IMPORT.format(module=module, libraries=LIBRARIES))
            if run:
                best[module] = min(best[module], took)
            if module == "arrayferry":
                loaded = found
    yield Row(
        "import arrayferry",
        "against array_api_compat",
        (
            Check(best["arrayferry"] / best["array_api_compat"], 2.5, "x"),
            Check(len(loaded), 0, "libraries loaded"),
        ),
        f"{best['arrayferry'] * 1e3:.1f} ms",
        {name: round(seconds * 1e6) for name, seconds in best.items()},
    )


def first_rows() -> Iterator[Row]:
    """The first conversion after the import, with five plugins, the library loaded and warm."""
    environment = {**os.environ, "ARRAYFERRY_PLUGINS": ",".join(LIBRARIES)}
    for target, repeats in (("numpy", 16), ("torch", 6), ("jax", 6)):
        code = FIRST.format(target=target, warm_up=WARM_UP[target])
        runs = [fresh_process(code, environment) for _ in range(repeats)][1:]
        imported, made, called = min(runs, key=sum)
        yield Row(
            "the first conversion after import, with discovery",
            f"to {target}, which is already loaded",
            (Check((made + called) * 1e3, 30.0, "ms"),),
            f"making the converter {made * 1e3:.1f} ms, calling it {called * 1e3:.1f} ms",
            {
                "import": round(imported * 1e6),
                "make": round(made * 1e6),
                "call": round(called * 1e6),
            },
        )
