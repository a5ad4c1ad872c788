"""Random bits of JAX: Threefry-2x32 with 20 rounds (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011)."""

from __future__ import annotations

import math
from typing import Any

from arrayferry.typing import AnyArray

from ._rule import Run, Site, rule

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = 0x1BD11BDA


@rule("threefry2x32")
def _threefry(site: Site) -> Run:
    library, broadcast, shape = site.library, site.xp.broadcast_to, site.shape

    def constant(value: int) -> Any:
        return library.full((), value, "uint32")

    def wrap(x: AnyArray) -> Any:
        return library.wrapped(x, "uint32")

    parity, round_numbers = constant(PARITY), [constant(round_index) for round_index in range(6)]
    rotations = [[(constant(shift), constant(32 - shift)) for shift in row] for row in ROTATIONS]

    def run(first: Any, second: Any, x: AnyArray, y: AnyArray) -> Any:
        key_words = first, second, first ^ second ^ parity
        x, y = wrap(x + first), wrap(y + second)
        for round_index in range(5):
            for left_shift, right_shift in rotations[round_index % 2]:
                x = wrap(x + y)
                y = x ^ wrap(y << left_shift) ^ (y >> right_shift)
            x = wrap(x + key_words[(round_index + 1) % 3])
            y = wrap(y + key_words[(round_index + 2) % 3] + round_numbers[round_index + 1])
        return [broadcast(x, shape), broadcast(y, shape)]

    return run


@rule("iota_2x32_shape", fresh=False)
def _counts(site: Site, shape: tuple[int, ...]) -> Run:
    import numpy as np

    counts = np.arange(math.prod(shape), dtype="uint64").reshape(shape)
    halves = (counts >> np.uint64(32)).astype("uint32"), counts.astype("uint32")
    counters = [*map(site.library.constant, halves)]
    return lambda: list(counters)
