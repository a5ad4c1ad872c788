"""The tests that a `Streaming` must pass. The attribute `Streaming.contract` names them for the contract kit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import NoneType
from typing import Any

import numpy as np

from arrayferry.extending import describe_error

from ._blocks import HOOK, Blocks, Reader


class StreamingTests:
    """The tests of how arrays are read block by block. They check nothing if the library has no `Streaming`."""

    def test_blocks(self: Any) -> None:
        """The blocks that `blocks` returns contain all values, even if several threads read them in any order."""
        streaming = self.part(HOOK)
        if streaming is None:
            return
        memory = self.tested.memory
        self.equal(memory, "lazy", "memory, which must be lazy for blocks() to be called")
        duty = "an arrayferry_streams.Blocks, or None", (Blocks, NoneType)
        cases = (((7, 3), 0), ((3, 7), 1), ((5,), 0), ((1, 1), 0), ((0, 2), 0), ((2, 5, 3), 1))
        for shape, axis in cases:
            for block in (None, 1, 3, 100):
                values = [self.numbers(shape) + offset for offset in (0, 20)]
                arrays = [self.make(x) for x in values]
                case = f"two arrays of shape {shape}, axis={axis}, block={block}"
                blocks = self.ask(
                    "blocks", arrays, axis, block=block, case=case, of=streaming, duty=duty
                )
                if blocks is not None:
                    self._check_blocks(blocks, values, axis, case)

    def _check_blocks(self: Any, blocks: Blocks, values: list[Any], axis: int, case: str) -> None:
        """Check the values of all blocks: first read one by one in several threads, and then by a `Reader`."""
        try:
            lengths = [[int(length) for length in row] for row in blocks.lengths]
        except Exception as error:
            label = f"lengths of blocks(), for {case}: raised {describe_error(error)}"
            raise AssertionError(label) from error
        expected_sums = [values[0].shape[axis]] * len(values)
        label = f"the sums of the lengths {lengths} of blocks(), for {case}"
        self.equal([*map(sum, lengths)], expected_sums, label)
        cut_points = [np.cumsum(row)[:-1] for row in lengths]
        array_parts = [np.split(x, cuts, axis) for x, cuts in zip(values, cut_points, strict=True)]
        arguments = [
            self.given((number, block), piece, f"(array, block) {(number, block)} of {case}")
            for number, pieces in enumerate(array_parts)
            for block, piece in enumerate(pieces[: len(lengths[number])])
        ][::-1]

        def read(pairs: list[Any]) -> list[Any]:
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(lambda pair: blocks.read(*pair), pairs))

        for _ in range(2):  # writing to the results of the first run must not change the second
            for x in self.run(self.call("read() of blocks()", read), *arguments):
                if isinstance(x, np.ndarray) and x.flags.writeable:
                    x[...] = -1
        argument_pairs = [arguments[n : n + 2] for n in range(0, len(arguments), 2)]
        steps = [[argument.x for argument in pair] for pair in argument_pairs]
        case, duty = f"blocks(), for {case}", ("an arrayferry_streams.Reader", Reader)
        reader = self.ask("open", steps, case=f"{steps} of {case}", of=blocks, duty=duty)
        call_name = f"read() of open({steps}) of {case}"
        call = self.call(call_name, lambda xs: reader.read(steps.index(xs)))
        with closing(reader):
            for pair in argument_pairs:
                self.run(call, *pair)
