"""Tests of lazy libraries: how values are computed, and how arrays are read block by block."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from arrayferry._plugin.backend import Backend
from arrayferry._plugin.blocks import Blocks
from arrayferry._plugin.call import overrides
from arrayferry._plugin.origin import Origin
from arrayferry._stream.function import stream

from .base import BackendTests, Tested, all_same, same_anywhere
from .checks import DUTIES, Duty, ask, same

_LENGTHS = (
    "Set lengths of what blocks() returns to one sequence of whole numbers for each array: the lengths of its blocks "
    "along the axis, as even_lengths() gives them"
)


class ComputeTests(BackendTests):
    """The tests of `compute`. A backend that has none passes them."""

    def test_computing_together(self) -> None:
        """`compute` returns the values of each array, in order, in memory of their own."""
        if not overrides(self._backend, Backend.compute):
            return
        shapes: list[tuple[int, ...]] = [(2, 3), (), (0,), (5,)]
        for each in (shapes, [*shapes, (2, 3, 4), (2, 3)] * 6, []):
            values = [_numbers(shape, index) for index, shape in enumerate(each)]
            arrays = [self.make(x) for x in values]
            for x in self._gives_all("compute", arrays, values):
                if hasattr(x, "flags") and hasattr(x, "__array_interface__"):
                    fix = DUTIES["compute"].fix
                    assert x.flags.writeable, f"compute() returned a read-only NumPy array. {fix}"
                    x[...] = -1
            what = "compute(), after what it returned before was written to"
            all_same(self._ask("compute", arrays), values, what, DUTIES["compute"].fix)


class BlockTests(Tested):
    """The tests of `blocks`. A part without `blocks` passes them."""

    def test_blocks(self) -> None:
        """`blocks` reads every part of an array once, in any order, from several threads."""
        origin: Origin = self._backend
        if not overrides(origin, Origin.blocks):
            return
        assert origin.memory == "lazy", (
            f"there is a blocks(), but memory is {origin.memory!r}, so it is never called. Set memory to 'lazy', or "
            "remove blocks()"
        )
        cases = (((7, 3), 0), ((3, 7), 1), ((5,), 0), ((1, 1), 0), ((0, 2), 0), ((2, 5, 3), 1))
        for shape, axis in cases:
            for wanted in (None, 1, 3, 100):
                values = [_numbers(shape), _numbers(shape, 100)]
                arrays = [self.make(x) for x in values]
                case = f"for two arrays of shape {shape}, axis={axis}, block={wanted}"
                blocks = self._ask("blocks", arrays, axis, block=wanted, case=case)
                if blocks is not None:
                    self._check_blocks(blocks, values, axis, case)

    def test_streams(self) -> None:
        """A stream of arrays gives all values, in blocks of any length."""
        origin: Origin = self._backend
        if not overrides(origin, Origin.blocks) or origin.memory != "lazy":
            return
        values, fix = _numbers((7, 3)), DUTIES["read"].fix
        for block in (None, 2, 7):
            array = self.make(values)
            if self._ask("blocks", [array], 0, block=block) is None:
                continue
            what = f'arrayferry.stream(array, "numpy", block={block})'
            parts = ask(_streamed, {"x": array}, block, call=what, duty=DUTIES["read"])
            same(np.concatenate([part["x"] for part in parts]), values, what, fix)

    def _check_blocks(self, blocks: Blocks, values: list[Any], axis: int, case: str) -> None:
        length, lengths = values[0].shape[axis], _lengths(blocks)
        whole = [sum(each) == length and min(each, default=0) >= 0 for each in lengths]
        assert whole == [True] * len(values), (
            f"lengths of what blocks() returned is {getattr(blocks, 'lengths', None)!r:.80}, but the length along the axis "
            f"is {length}, {case}. {_LENGTHS}"
        )
        pairs = [
            (array, block) for array in (1, 0) for block in reversed(range(len(lengths[array])))
        ]
        expected = [_part(values[array], lengths[array], block, axis) for array, block in pairs]

        def read(pair: tuple[int, int]) -> Any:
            return ask(blocks.read, *pair, call=f"read{pair}", case=case, duty=DUTIES["read"])

        for _ in range(2):  # the first time, the results are written to
            with ThreadPoolExecutor(4) as pool:
                parts = list(pool.map(read, pairs))
            for pair, x, own in zip(pairs, parts, expected, strict=True):
                same_anywhere(x, own, f"read{pair}, {case}", DUTIES["read"].fix)
                if hasattr(x, "__array_interface__") and x.flags.writeable:
                    x[...] = -1
        steps = [pairs[start : start + 2] for start in range(0, len(pairs), 2)]
        duty = DUTIES["open"]
        reader = ask(blocks.open, steps, call="open()", case=case, duty=duty)
        duty = Duty(duty.fix, Sequence)
        try:
            for number in range(len(steps)):
                call = f"read({number}) of open({steps})"
                parts = ask(reader.read, number, call=call, case=case, duty=duty)
                own = expected[2 * number : 2 * number + 2]
                all_same(parts, own, f"{call}, {case}", duty.fix)
        finally:
            reader.close()


def _streamed(value: Any, block: int | None) -> list[Any]:
    return list(stream(value, "numpy", block=block, sparse="dense"))


def _lengths(blocks: Blocks) -> list[list[int]]:
    """Return the lengths of blocks, or none if they are not numbers."""
    try:
        return [[int(length) for length in each] for each in blocks.lengths]
    except (AttributeError, TypeError, ValueError):
        return []


def _numbers(shape: tuple[int, ...], first: int = 1) -> Any:
    return np.arange(first, first + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _part(values: Any, lengths: Sequence[int], block: int, axis: int) -> Any:
    start = sum(lengths[:block])
    return values[(*(slice(None),) * axis, slice(start, start + lengths[block]))]
