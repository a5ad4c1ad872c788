"""Tests of lazy libraries: how values are computed, and how arrays are read block by block."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from arrayferry import _api
from arrayferry._errors import ArrayFerryError, ConversionError, NotAnArrayError, describe_error
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.blocks import Blocks, Reader
from arrayferry._plugin.call import overrides
from arrayferry._plugin.origin import Origin
from arrayferry._registry.registry import default_registry
from arrayferry._stream.function import stream

from .base import Tested, such_as
from .same import describe_type, same

__all__ = ["BlockTests", "ComputeTests"]

_COMPUTE = (
    "Return from compute(xs) a list with one entry for each of xs, in the same order: for an array its values, in memory "
    "that nothing else uses, and for a deferred value the result of computing it"
)
_BLOCKS = "Return from blocks(xs, axis, block=None, client=None) an arrayferry.Blocks, such as Slices(xs, axis, lengths)"
_LENGTHS = (
    "Set lengths of what blocks() returns to one sequence of whole numbers for each array: the lengths of its blocks "
    "along the axis, as even_lengths() gives them"
)
_READ = (
    "Return from read(array, block) of what blocks() returns the values of that block, which begins along the axis at "
    "the sum of the lengths before it, in memory that nothing else writes to"
)
_OPEN = (
    "Return from open(steps) of what blocks() returns a Reader, whose read(step) returns a list with one block for each "
    "pair of steps[step], in the same order"
)


class ComputeTests(Tested):
    """The tests of `compute` and `deferred_types`. A backend that has neither passes them."""

    def test_computing_together(self) -> None:
        """`compute` returns the values of each array, in order, in memory of their own."""
        backend: Backend = self._backend
        if not overrides(backend, Backend.compute):
            return
        shapes: list[tuple[int, ...]] = [(2, 3), (), (0,), (5,)]
        self._check_computed(backend, shapes)
        self._check_computed(backend, [*shapes, (2, 3, 4), (2, 3)] * 6)
        assert len(_compute(backend, [])) == 0, f"compute([]) did not return []. {_COMPUTE}"

    def _check_computed(self, backend: Backend, shapes: list[tuple[int, ...]]) -> None:
        """Check what arrays of these shapes are computed to in one call."""
        values = [_numbers(shape, index) for index, shape in enumerate(shapes)]
        arrays = [self.make(x) for x in values]
        computed = _compute(backend, arrays)
        for index, expected in enumerate(values):
            what = f"compute(), for array {index} of {len(arrays)}"
            same(_read(computed[index], what), expected, what, _COMPUTE)
        for x in computed:
            if hasattr(x, "flags") and hasattr(x, "__array_interface__"):
                assert x.flags.writeable, f"compute() returned a read-only NumPy array. {_COMPUTE}"
                x[...] = -1
        for x, expected in zip(_compute(backend, arrays), values, strict=True):
            what = "compute(), after what it returned before was written to"
            same(_read(x, what), expected, what, _COMPUTE)

    def test_deferred_values_are_computed(self) -> None:
        """Values of `deferred_types` are recognised, and computed together with arrays."""
        backend: Backend = self._backend
        if not backend.deferred_types:
            return
        assert overrides(backend, Backend.compute), (
            f"deferred_types is {backend.deferred_types}, but there is no compute(). {_COMPUTE}, or set deferred_types "
            "to ()"
        )
        values = _numbers((2, 3))
        lazies = self.deferred(values)
        if not lazies:
            import pytest

            pytest.skip(
                "not tested: deferred_types. Write deferred(self, values) in the test: return a list of such values, "
                "each of which is computed to the NumPy array values"
            )
        for lazy in lazies:
            self._check_deferred(backend, lazy, values)

    def _check_deferred(self, backend: Backend, lazy: Any, values: Any) -> None:
        what = f"a {describe_type(lazy)}"
        kind = default_registry().kind(lazy)
        assert kind.what == "deferred", (
            f"{what} is not recognised as a deferred value: it is taken for {kind.what!r}. Set deferred_types, which is "
            f"{backend.deferred_types}, to the dotted paths of these types{such_as(describe_type(lazy), backend.deferred_types)}, and "
            "leave them out of array_types"
        )
        owner = "nobody" if kind.backend is None else kind.backend.name
        assert owner == backend.name, (
            f"{what} is recognised as a deferred value of {owner}. Leave its type out of deferred_types"
        )
        before, after = self.make(values + 1), self.make(values + 2)
        computed = _compute(backend, [before, lazy, after])
        for x, expected in zip(computed, (values + 1, values, values + 2), strict=True):
            case = f"compute() of an array, {what} and another array"
            same(_read(x, case), expected, case, _COMPUTE)
        try:
            tree = _api.convert({"x": [lazy, "text"]}, "numpy", sparse="dense")
        except ArrayFerryError as error:
            raise AssertionError(f"{what} cannot be converted: {error}. {_COMPUTE}") from error
        same(tree["x"][0], values, f"{what}, converted to numpy", _COMPUTE)


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
                blocks = self._blocks(origin, arrays, axis, wanted, case)
                if blocks is not None:
                    self._check_blocks(blocks, values, axis, case)

    def test_streams(self) -> None:
        """A stream of arrays gives all values, in blocks of any length."""
        origin: Origin = self._backend
        if not overrides(origin, Origin.blocks) or origin.memory != "lazy":
            return
        import numpy as np

        values = _numbers((7, 3))
        for block in (None, 2, 7):
            array = self.make(values)
            if self._blocks(origin, [array], 0, block, f"block={block}") is None:
                continue
            what = f'arrayferry.stream(array, "numpy", block={block})'
            try:
                parts = list(stream({"x": array}, "numpy", block=block, sparse="dense"))
            except ArrayFerryError as error:
                reason = describe_error(error).removesuffix(".")
                raise AssertionError(f"{what} raised {reason}. {_READ}") from error
            joined = np.concatenate([part["x"] for part in parts])
            same(joined, values, what, _READ)

    def _blocks(
        self, origin: Origin, arrays: list[Any], axis: int, wanted: int | None, case: str
    ) -> Blocks | None:
        try:
            blocks = origin.blocks(arrays, axis, block=wanted)
        except Exception as error:
            raise AssertionError(
                f"blocks() raised {describe_error(error)}, {case}. {_BLOCKS}"
            ) from error
        assert blocks is None or isinstance(blocks, Blocks), (
            f"blocks() returned a {describe_type(blocks)}, {case}. {_BLOCKS}"
        )
        return blocks

    def _check_blocks(self, blocks: Blocks, values: list[Any], axis: int, case: str) -> None:
        length = values[0].shape[axis]
        lengths = _lengths(blocks)
        right = [sum(each) for each in lengths] == [length] * len(values)
        assert right, (
            f"lengths of what blocks() returned is {getattr(blocks, 'lengths', None)!r:.80}, but the length along the axis "
            f"is {length}, {case}. {_LENGTHS}"
        )
        least = min((size for each in lengths for size in each), default=0)
        assert least >= 0, f"lengths of what blocks() returned has {least}, {case}. {_LENGTHS}"
        pairs = [
            (array, block) for array in (1, 0) for block in reversed(range(len(lengths[array])))
        ]
        expected = {pair: _part(values[pair[0]], lengths[pair[0]], pair[1], axis) for pair in pairs}

        def read(pair: tuple[int, int]) -> Any:
            try:
                return blocks.read(*pair)
            except Exception as error:
                raise AssertionError(
                    f"read{pair} raised {describe_error(error)}, {case}. {_READ}"
                ) from error

        for _ in range(2):  # the first time, what is read is written to
            with ThreadPoolExecutor(4) as pool:
                parts = list(pool.map(read, pairs))
            for pair, x in zip(pairs, parts, strict=True):
                what = f"read{pair}, {case}"
                same(_read(x, what), expected[pair], what, _READ)
                if hasattr(x, "__array_interface__") and x.flags.writeable:
                    x[...] = -1
        steps = [pairs[start : start + 2] for start in range(0, len(pairs), 2)]
        self._check_reader(blocks, steps, expected, case)

    def _check_reader(
        self, blocks: Blocks, steps: Sequence[Any], expected: dict[Any, Any], case: str
    ) -> None:
        try:
            reader = blocks.open(steps)
        except Exception as error:
            raise AssertionError(
                f"open() raised {describe_error(error)}, {case}. {_OPEN}"
            ) from error
        assert isinstance(reader, Reader), (
            f"open() returned a {describe_type(reader)}, {case}. {_OPEN}"
        )
        try:
            for number, step in enumerate(steps):
                try:
                    parts = list(reader.read(number))
                except Exception as error:
                    raise AssertionError(
                        f"read({number}) of open({steps}) raised {describe_error(error)}, {case}. {_OPEN}"
                    ) from error
                assert len(parts) == len(step), (
                    f"read({number}) of open({steps}) returned {len(parts)} blocks, {case}. {_OPEN}"
                )
                for pair, x in zip(step, parts, strict=True):
                    what = f"read({number}) of open({steps}), {case}"
                    same(_read(x, what), expected[pair], what, _OPEN)
        finally:
            reader.close()


def _lengths(blocks: Blocks) -> list[list[int]]:
    """Return the lengths of blocks, or none if they are not numbers."""
    try:
        return [[int(length) for length in each] for each in blocks.lengths]
    except (AttributeError, TypeError, ValueError):
        return []


def _numbers(shape: tuple[int, ...], first: int = 1) -> Any:
    import numpy as np

    return np.arange(first, first + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def _part(values: Any, lengths: Sequence[int], block: int, axis: int) -> Any:
    start = sum(lengths[:block])
    return values[(*(slice(None),) * axis, slice(start, start + lengths[block]))]


def _compute(backend: Backend, xs: list[Any]) -> list[Any]:
    try:
        computed = backend.compute(xs)
    except Exception as error:
        raise AssertionError(
            f"compute() raised {describe_error(error)}, for {len(xs)} values. {_COMPUTE}"
        ) from error
    count = len(computed) if isinstance(computed, Sequence) else f"a {describe_type(computed)}"
    assert count == len(xs), f"compute() returned {count} for {len(xs)} values. {_COMPUTE}"
    for x in computed:
        assert not isinstance(x, ConversionError), f"compute() returned an error: {x}. {_COMPUTE}"
    return list(computed)


def _read(x: Any, what: str) -> Any:
    """Return the values of an array of any library."""
    import numpy as np

    if isinstance(x, np.ndarray):
        return np.array(x)
    try:
        _api.backend_of(x)
    except NotAnArrayError:
        raise AssertionError(
            f"{what}: a {describe_type(x)} is not an array of a known library. Return an array with its values"
        ) from None
    return np.array(_api.convert(x, "numpy", sparse="dense"))
