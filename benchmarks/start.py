"""Rows on startup: the import and the first conversion, each in a fresh interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator

from row import Check, Row
from timing import fresh_process

__all__ = ["first_rows", "gym_rows", "import_rows"]

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

FLOOR = """
import json, time
import numpy
x = numpy.ones(4, numpy.float32)
{warm_up}
INSTALLED
start = time.perf_counter()
import importlib.metadata
list(importlib.metadata.entry_points(group="arrayferry"))
import pluggy
print(json.dumps([time.perf_counter() - start]))
"""

GYM = """
import json, time
import gymnasium, gymnasium.envs.registration
INSTALLED
start = time.perf_counter()
import arrayferry_gym
print(json.dumps([time.perf_counter() - start]))
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
        floor_code = FLOOR.format(warm_up=WARM_UP[target])
        runs, floors = [], []
        for run in range(repeats):
            found, floor = fresh_process(code, environment), fresh_process(floor_code, environment)
            if run:
                runs.append(found)
                floors += floor
        imported, made, called = min(runs, key=sum)
        yield Row(
            "the first conversion after import, with discovery",
            f"to {target}, which is already loaded",
            (Check((made + called) * 1e3, 30.0, "ms"),),
            f"floor {min(floors) * 1e3:.1f} ms: the entry points and pluggy alone; making the converter "
            f"{made * 1e3:.1f} ms, calling it {called * 1e3:.1f} ms",
            {
                "floor": round(min(floors) * 1e6),
                "import": round(imported * 1e6),
                "make": round(made * 1e6),
                "call": round(called * 1e6),
            },
        )


def gym_rows() -> Iterator[Row]:
    """The import of the adapters, after that of Gymnasium."""
    best = min(fresh_process(GYM)[0] for _ in range(8))
    check = Check(best * 1e3, 2.0, "ms")
    yield Row(
        "import arrayferry_gym", "after gymnasium", (check,), "", {"import": round(best * 1e6)}
    )
