"""The rules of primitives that read or write at computed indices.

All these rules use flat indices, which are the indices of the elements in the flattened array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry.typing import AnyArray, AnyTree

from ._rule import Run, Site, rule

Dims = tuple[int, ...]
Places = Callable[[Sequence[Any]], tuple[Any, Any]]
"""A function that maps the indices along each indexed axis to flat indices and a mask.

The mask is True for indices that are in bounds. It is None if all indices are in bounds or are clipped.
"""
SCATTERS = {
    "scatter": "set", "scatter-add": "add", "scatter-sub": "subtract", "scatter-mul": "multiply",
    "scatter-min": "minimum", "scatter-max": "maximum",
}  # fmt: skip


@rule("dynamic_slice")
def _dynamic_slice(site: Site, slice_sizes: Dims) -> Run:
    places, take = _window(site, slice_sizes), site.library.take
    return lambda x, *starts: take(x, places(starts)[0])


@rule("dynamic_update_slice")
def _dynamic_update_slice(site: Site) -> Run:
    places, write = _window(site, site.ins[1].shape), _writer(site, "set")
    return lambda x, update, *starts: write(x, *places(starts), update)


@rule("gather", "indices_are_sorted unique_indices")
def _gather(
    site: Site, dimension_numbers: Any, fill_value: Any, mode: str, slice_sizes: Dims
) -> Run:
    take, where = site.library.take, site.library.function("where")
    places = _places(site, mode, site.shape, slice_sizes, *dimension_numbers)
    if fill_value is None:
        kind, edges = site.kind(site.dtype), site.edges(site.dtype)
        fill_value = math.nan if kind in ("float", "complex") else edges[kind != "int"]
    fill = site.library.full((), fill_value, site.dtype)

    def run(x: AnyArray, indices: AnyArray) -> Any:
        positions, inside = places(_columns(indices))
        return take(x, positions) if inside is None else where(inside, take(x, positions), fill)

    return run


@rule(
    " ".join(f"{name} {name.replace('-', '_')}" for name in SCATTERS),
    "indices_are_sorted unique_indices update_jaxpr update_consts",
)
def _scatter(site: Site, dimension_numbers: Any, mode: str) -> Run:
    updated, axes = site.ins[2].shape, range(len(site.shape))
    windows, inserted, _, batching, _ = dimension_numbers
    window_axes = [axis for axis in axes if axis not in (*inserted, *batching)]
    lengths = dict(zip(window_axes, (updated[window] for window in windows), strict=True))
    sizes = tuple(lengths.get(axis, 1) for axis in axes)
    places = _places(site, mode, updated, sizes, *dimension_numbers)
    write = _writer(site, SCATTERS[site.name.replace("_", "-")])
    return lambda x, indices, updates: write(x, *places(_columns(indices)), updates)


def _writer(site: Site, how: str) -> Run:
    """Return a function of an array, flat indices, their mask (see `Places`) and updates, which returns a new array."""
    library, reshape, shape, dtype = site.library, site.xp.reshape, site.shape, site.dtype
    size, concat, where = math.prod(shape), site.xp.concat, library.function("where")
    outside, spare = library.full((), size, "int64"), library.full((1,), 0, dtype)
    combined = "add" if how == "subtract" else how
    if not size:
        return lambda x, places, inside, updates: x

    def write(x: AnyArray, places: Any, inside: Any, updates: AnyTree) -> Any:
        flat = reshape(x, (-1,))
        if inside is not None:  # updates out of bounds are written to a spare element at the end
            flat, places = concat([flat, spare]), where(inside, places, outside)
        values = -updates if how == "subtract" else updates
        flat = library.put(flat, reshape(places, (-1,)), reshape(values, (-1,)), combined)
        updated = reshape(flat[:size], shape)
        return updated if how == "set" else library.wrapped(updated, dtype)

    return write


def _columns(indices: AnyArray) -> list[Any]:
    return [indices[..., number] for number in range(indices.shape[-1])]


def _window(site: Site, sizes: Dims) -> Places:
    """Return a function that maps the start of a window to the flat indices of its elements.

    A window that extends beyond the array is moved into it.
    """
    axes = tuple(range(len(sizes)))
    return _places(site, "CLIP", sizes, sizes, axes, (), axes, (), ())


def _places(
    site: Site, mode: str, full: Dims, sizes: Dims, windows: Dims, collapsed: Dims, index_map: Dims, batching: Dims,
    indices_batching: Dims,
) -> Places:  # fmt: skip
    """Return a function that maps the indices of `gather` or `scatter` to flat indices in the operand.

    Args:
        site: the site of the rule. Its first input is the operand.
        mode: how indices out of bounds are treated: "CLIP", "FILL_OR_DROP" or "PROMISE_IN_BOUNDS".
        full: the shape of the flat indices, which is that of the result of `gather` or of the updates of `scatter`.
        sizes: for each axis of the operand, the length of a window.
        windows: the axes of `full` that index the elements within a window. The other axes are batch axes.
        collapsed: the axes of the operand along which a window has one element and no axis in `full`.
        index_map: for each component of an index, the axis of the operand that it refers to.
        batching: the batch axes of the operand, in the order of `indices_batching`.
        indices_batching: the batch axes of the indices.
    """
    if mode not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"):
        raise NotImplementedError(f"the index mode {mode} is not supported")
    import numpy as np

    library, operand, drops = site.library, site.ins[0].shape, mode == "FILL_OR_DROP"
    clip, cast, reshape = library.function("clip"), library.cast, site.xp.reshape
    strides = [math.prod(operand[axis + 1 :]) for axis in range(len(operand))]
    batch = [axis for axis in range(len(full)) if axis not in windows]
    lengths = tuple(n if axis in batch else 1 for axis, n in enumerate(full))
    window_axes = [axis for axis in range(len(operand)) if axis not in (*collapsed, *batching)]
    along = [*zip(window_axes, windows, strict=True)]
    along += [(axis, batch[n]) for axis, n in zip(batching, indices_batching, strict=True)]
    counts = np.indices(full, "int64", sparse=True)
    start = np.zeros((1,) * len(full), "int64")
    offsets: Any = sum((counts[other] * strides[axis] for axis, other in along), start)
    offsets = site.xp.broadcast_to(library.constant(offsets), full)
    limits = [(strides[axis], operand[axis] - sizes[axis]) for axis in index_map]
    # int64 cannot represent all values of uint64
    large = site.ins[1 if "scatter" in site.name else -1].dtype == "uint64"

    def places(indices: Sequence[Any]) -> tuple[Any, Any]:
        positions, inside = offsets, None
        for index, (stride, last) in zip(indices, limits, strict=True):
            index = cast(clip(index, 0, last + 1) if large else index, "int64")
            if batch:
                index = reshape(index, lengths)
            if drops:
                fits = (index >= 0) & (index <= last)
                inside = fits if inside is None else inside & fits
            if last:
                positions = positions + clip(index, 0, last) * stride
        return positions, inside

    return places
