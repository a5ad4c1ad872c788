"""The rules of primitives that move, repeat, select or pad elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise, starmap
from typing import Any

from arrayferry.typing import AnyArray, AnyTree

from ._rule import Run, Site, rule


def along(axis: int, places: Iterable[Any]) -> Run:
    """Return a function that splits an array into a list of parts, one for each index or slice along `axis`."""
    part_indices = [(*(slice(None),) * axis, place, ...) for place in places]
    return lambda x: [x[part_index] for part_index in part_indices]


def _joined(join: Run, axis: int) -> Run:
    return lambda *arrays: join(arrays, axis=axis)


rule("unstack", fresh=False)(lambda site, axis: along(axis, range(len(site.outs))))
rule("split", fresh=False)(
    lambda site, axis, sizes: along(axis, starmap(slice, pairwise((0, *accumulate(sizes)))))
)
rule("concatenate")(lambda site, dimension: _joined(site.xp.concat, dimension))
rule("stack")(lambda site, axis: _joined(site.xp.stack, axis))
rule("tile")(lambda site, reps: lambda x: site.xp.tile(x, reps))
rule("squeeze expand_dims", fresh=False)(
    lambda site, dimensions: partial(site.xp.reshape, shape=site.shape)
)
rule("transpose", fresh=False)(
    lambda site, permutation: partial(site.xp.permute_dims, axes=permutation)
)
rule("rev", fresh=False)(lambda site, dimensions: partial(site.xp.flip, axis=dimensions))
rule("empty empty2", "dtype shape out_sharding memory_space")(
    lambda site: lambda: site.library.full(site.shape, 0, site.dtype)
)


@rule("broadcast_in_dim", "sharding", fresh=False)
def _broadcast(site: Site, broadcast_dimensions: tuple[int, ...], shape: tuple[int, ...]) -> Run:
    xp, old_shape = site.xp, site.ins[0].shape
    axis_lengths = dict(zip(broadcast_dimensions, old_shape, strict=True))
    expanded_shape = tuple(axis_lengths.get(axis, 1) for axis in range(len(shape)))
    if expanded_shape == old_shape:
        return lambda x: xp.broadcast_to(x, shape)
    return lambda x: xp.broadcast_to(xp.reshape(x, expanded_shape), shape)


@rule("reshape", "sharding", fresh=False)
def _reshape(site: Site, dimensions: Any, new_sizes: tuple[int, ...]) -> Run:
    xp = site.xp
    if dimensions is None:
        return lambda x: xp.reshape(x, new_sizes)
    return lambda x: xp.reshape(xp.permute_dims(x, dimensions), new_sizes)


@rule("slice", fresh=False)
def _slice(site: Site, limit_indices: Any, start_indices: Any, strides: Any) -> Run:
    steps = strides or (1,) * len(start_indices)
    slices = tuple(map(slice, start_indices, limit_indices, steps))
    return lambda x: x[slices]


@rule("iota", "sharding", fresh=False)
def _iota(site: Site, dimension: int, dtype: str, shape: tuple[int, ...]) -> Run:
    numbers = site.library.cast(site.library.indices(*shape, of=dimension), dtype)
    return lambda: site.xp.broadcast_to(numbers, shape)


@rule("pad", fresh=False)
def _pad(site: Site, padding_config: Any) -> Run:
    return padded(site.library, site.ins[0].shape, padding_config)


def padded(library: Any, old_shape: Sequence[int], config: Sequence[tuple[int, int, int]]) -> Run:
    """Return a function of an array and a value. It adds the value around and between the elements of the array.

    Args:
        library: the library of the array.
        old_shape: the shape of the array.
        config: for each axis, three numbers: how often to add the value before, after and between the elements. A
            negative number before or after crops the array.
    """
    if not any(map(any, config)):
        return lambda x, value: x
    if library.records and not any(between for *_, between in config):
        lows, highs = ([triple[n] for triple in config] for n in range(2))
        return partial(library.native.pad, ends=[*lows, *highs])
    xp = library.xp
    new_shape: tuple[int, ...] = ()
    source: tuple[slice, ...] = ()
    target: tuple[slice, ...] = ()
    for length, (low, high, between) in zip(old_shape, config, strict=True):
        step = between + 1
        total = low + length + max(0, length - 1) * between + high
        # src_start:src_stop are the elements that are not cropped, and start:end:step their new positions
        src_start, src_stop = max(0, -(low // step)), min(length, (total - 1 - low) // step + 1)
        start, end = low + src_start * step, low + (src_stop - 1) * step + 1
        if src_stop <= src_start:
            src_start = src_stop = start = end = 0
        source, target = (*source, slice(src_start, src_stop)), (*target, slice(start, end, step))
        new_shape = (*new_shape, total)

    def run(x: AnyArray, value: AnyTree) -> Any:
        filled = xp.asarray(xp.broadcast_to(value, new_shape), copy=True)
        if hasattr(filled, "at"):  # arrays of JAX cannot be written to
            return filled.at[target].set(x[source])
        filled[target] = x[source]
        return filled

    return run
