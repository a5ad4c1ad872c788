"""Tests of how arrays are read block by block."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np

from arrayferry import Blocks
from arrayferry._plugin.call import overrides
from arrayferry.inspection import Origin

from .calls import Call, Given, Runner
from .checks import ask, equal
from .samples import numbers


class BlockTests(Runner):
    """The tests of `blocks`. A part without `blocks` passes them."""

    def test_blocks(self) -> None:
        """`blocks` reads every part of an array once, in any order, from several threads."""
        origin: Origin = self.tested
        if not overrides(origin, Origin.blocks):
            return
        equal(origin.memory, "lazy", "memory, which must be lazy for blocks() to be called")
        cases = (((7, 3), 0), ((3, 7), 1), ((5,), 0), ((1, 1), 0), ((0, 2), 0), ((2, 5, 3), 1))
        for shape, axis in cases:
            for wanted in (None, 1, 3, 100):
                values = [numbers(self._usual(), shape) + number for number in (0, 20)]
                arrays = [self.make(x) for x in values]
                case = f"two arrays of shape {shape}, axis={axis}, block={wanted}"
                blocks = self.ask("blocks", arrays, axis, block=wanted, case=case)
                if blocks is not None:
                    self._check_blocks(blocks, values, axis, case)

    def _check_blocks(self, blocks: Blocks, values: list[Any], axis: int, case: str) -> None:
        """Check all blocks: read one by one in several threads, and in steps by a reader."""
        what = f"lengths of blocks(), for {case}"
        lengths = ask(
            lambda: [[int(length) for length in each] for each in blocks.lengths], what=what
        )
        expected = [values[0].shape[axis]] * len(values)
        equal([*map(sum, lengths)], expected, f"lengths {lengths} of blocks(), for {case}: sums")
        ends = [np.cumsum(each)[:-1] for each in lengths]
        parts = [np.split(x, own, axis) for x, own in zip(values, ends, strict=True)]
        given = [
            Given((array, block), part, f"(array, block) {(array, block)} of {case}")
            for array, own in enumerate(parts)
            for block, part in enumerate(own[: len(lengths[array])])
        ][::-1]

        def read(pairs: list[Any]) -> list[Any]:
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(lambda pair: blocks.read(*pair), pairs))

        for _ in range(2):  # the first time, the results are written to
            for x in self.run(Call("read() of blocks()", read, None, None), *given):
                if isinstance(x, np.ndarray) and x.flags.writeable:
                    x[...] = -1
        pairs = [given[n : n + 2] for n in range(0, len(given), 2)]
        steps = [[each.x for each in pair] for pair in pairs]
        what = f"open({steps}) of blocks()"
        reader = ask(blocks.open, steps, what=f"{what}, for {case}", method="open")
        call = Call(f"read() of {what}", lambda xs: reader.read(steps.index(xs)), None, None)
        with closing(reader):
            for pair in pairs:
                self.run(call, *pair)
