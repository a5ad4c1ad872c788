"""Speed on a GPU that CuPy, PyTorch and JAX can use, as ratios. Run: python benchmarks/gpu.py.

- 1 GiB against 4 bytes: close to 1 where memory is shared.
- A tree of 32 arrays of 1 KiB from host memory: against PyTorch array by array, against one pinned copy by hand, and against
  `jax.device_put` of the tree.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import arrayferry as af


def main() -> int:
    try:
        import cupy
        import jax
        import torch

        gpu = jax.devices("gpu")[0]
        cupy.zeros(1)
        torch.zeros(1, device="cuda:0")
    except Exception as error:
        print(f"no GPU that CuPy, PyTorch and JAX can use ({type(error).__name__}: {error})")
        return 0

    def best(functions: list[Callable[[], Any]], repeats: int = 30) -> list[float]:
        """Return the minima of interleaved runs, in microseconds."""
        found = [float("inf")] * len(functions)
        for _ in range(repeats):
            for index, function in enumerate(functions):
                torch.cuda.synchronize()
                cupy.cuda.runtime.deviceSynchronize()
                start = time.perf_counter()
                jax.block_until_ready(function())
                torch.cuda.synchronize()
                cupy.cuda.runtime.deviceSynchronize()
                found[index] = min(found[index], (time.perf_counter() - start) * 1e6)
        return found

    make = {
        "torch": lambda n: torch.zeros(n, device="cuda:0"),
        "cupy": lambda n: cupy.zeros(n, np.float32),
        "jax": lambda n: jax.device_put(np.zeros(n, np.float32), gpu),
    }
    print(torch.cuda.get_device_name(), torch.__version__, cupy.__version__, jax.__version__)
    print(f"\n{'1 GiB against 4 bytes':30} {'us':>9} {'us':>9} {'ratio':>7}")
    for one, two in itertools.permutations(make, 2):
        convert, large, small = af.converter(two), make[one](1 << 28), make[one](1)
        big, little = best([lambda c=convert, x=large: c(x), lambda c=convert, x=small: c(x)])
        print(f"{one + ' -> ' + two:30} {big:9.1f} {little:9.1f} {big / little:7.2f}")
        del large

    tree = {str(i): np.zeros(256, np.float32) for i in range(32)}
    pinned = torch.empty(32 * 256, pin_memory=True)

    def by_hand() -> Any:
        np.concatenate(list(tree.values()), out=pinned.numpy())
        return pinned.to("cuda:0", non_blocking=True).split(256)

    def leaf_by_leaf() -> Any:
        return {name: torch.from_numpy(x).to("cuda:0") for name, x in tree.items()}

    others = [leaf_by_leaf, by_hand, lambda: jax.device_put(tree, gpu)]
    print(f"\n{'32 arrays of 1 KiB to':30} {'us':>9} {'by leaf':>9} {'by hand':>9} {'jax':>9}")
    for target in make:
        convert = af.converter(target, device="cuda:0")
        times = best([lambda c=convert: c(tree), *others])
        print(f"{target:30} " + " ".join(f"{each:9.1f}" for each in times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
