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
    places_of, take = _window(site, slice_sizes), site.library.take
    return lambda x, *starts: take(x, places_of(starts)[0])


@rule("dynamic_update_slice")
def _dynamic_update_slice(site: Site) -> Run:
    places_of, write = _window(site, site.ins[1].shape), _writer(site, "set")
    return lambda x, update, *starts: write(x, *places_of(starts), update)


@rule("gather", "indices_are_sorted unique_indices")
def _gather(
    site: Site, dimension_numbers: Any, fill_value: Any, mode: str, slice_sizes: Dims
) -> Run:
    take, where = site.library.take, site.library.function("where")
    places_of = _places(site, mode, site.shape, slice_sizes, *dimension_numbers)
    if fill_value is None:
        kind, edges = site.kind(site.dtype), site.edges(site.dtype)
        fill_value = math.nan if kind in ("float", "complex") else edges[kind != "int"]
    fill_array = site.library.full((), fill_value, site.dtype)

    def run(x: AnyArray, indices: AnyArray) -> Any:
        positions, mask = places_of(_columns(indices))
        return take(x, positions) if mask is None else where(mask, take(x, positions), fill_array)

    return run


@rule(
    " ".join(f"{name} {name.replace('-', '_')}" for name in SCATTERS),
    "indices_are_sorted unique_indices update_jaxpr update_consts",
)
def _scatter(site: Site, dimension_numbers: Any, mode: str) -> Run:
    updates_shape, axes = site.ins[2].shape, range(len(site.shape))
    update_axes, inserted_axes, _, batch_axes, _ = dimension_numbers
    window_axes = [axis for axis in axes if axis not in (*inserted_axes, *batch_axes)]
    lengths = dict(zip(window_axes, (updates_shape[window] for window in update_axes), strict=True))
    window_sizes = tuple(lengths.get(axis, 1) for axis in axes)
    places_of = _places(site, mode, updates_shape, window_sizes, *dimension_numbers)
    write = _writer(site, SCATTERS[site.name.replace("_", "-")])
    return lambda x, indices, updates: write(x, *places_of(_columns(indices)), updates)


def _writer(site: Site, how: str) -> Run:
    """Return a function of an array, flat indices, their mask (see `Places`) and updates, which returns a new array."""
    library, reshape, shape, dtype = site.library, site.xp.reshape, site.shape, site.dtype
    size, concat, where = math.prod(shape), site.xp.concat, library.function("where")
    outside_index, spare_element = library.full((), size, "int64"), library.full((1,), 0, dtype)
    put_mode = "add" if how == "subtract" else how
    if not size:
        return lambda x, places, inside, updates: x

    def write(x: AnyArray, places: Any, inside: Any, updates: AnyTree) -> Any:
        flat_x = reshape(x, (-1,))
        if inside is not None:  # updates out of bounds are written to a spare element at the end
            flat_x, places = concat([flat_x, spare_element]), where(inside, places, outside_index)
        values = -updates if how == "subtract" else updates
        flat_x = library.put(flat_x, reshape(places, (-1,)), reshape(values, (-1,)), put_mode)
        updated = reshape(flat_x[:size], shape)
        return updated if how == "set" else library.wrapped(updated, dtype)

    return write


def _columns(indices: AnyArray) -> list[Any]:
    return [indices[..., column] for column in range(indices.shape[-1])]


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

    library, x_shape, drops_outside = site.library, site.ins[0].shape, mode == "FILL_OR_DROP"
    clip, cast, reshape = library.function("clip"), library.cast, site.xp.reshape
    strides = [math.prod(x_shape[axis + 1 :]) for axis in range(len(x_shape))]
    batch = [axis for axis in range(len(full)) if axis not in windows]
    index_shape = tuple(n if axis in batch else 1 for axis, n in enumerate(full))
    window_axes = [axis for axis in range(len(x_shape)) if axis not in (*collapsed, *batching)]
    axis_pairs = [*zip(window_axes, windows, strict=True)]
    axis_pairs += [(axis, batch[n]) for axis, n in zip(batching, indices_batching, strict=True)]
    grid = np.indices(full, "int64", sparse=True)
    zeros = np.zeros((1,) * len(full), "int64")
    offsets: Any = sum((grid[full_axis] * strides[axis] for axis, full_axis in axis_pairs), zeros)
    offsets = site.xp.broadcast_to(library.constant(offsets), full)
    stride_limits = [(strides[axis], x_shape[axis] - sizes[axis]) for axis in index_map]
    # int64 cannot represent all values of uint64
    is_uint64 = site.ins[1 if "scatter" in site.name else -1].dtype == "uint64"

    def places_of(indices: Sequence[Any]) -> tuple[Any, Any]:
        positions, mask = offsets, None
        for index, (stride, last_start) in zip(indices, stride_limits, strict=True):
            index = cast(clip(index, 0, last_start + 1) if is_uint64 else index, "int64")
            if batch:
                index = reshape(index, index_shape)
            if drops_outside:
                fits_mask = (index >= 0) & (index <= last_start)
                mask = fits_mask if mask is None else mask & fits_mask
            if last_start:
                positions = positions + clip(index, 0, last_start) * stride
        return positions, mask

    return places_of
