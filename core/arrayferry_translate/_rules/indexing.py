"""Primitives that read and write at computed places, by the places in an array's flat form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._rule import Run, Site, rule

Dims = tuple[int, ...]


def _strides(shape: Dims) -> Dims:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@rule("dynamic_slice", "slice_sizes")
def _dynamic_slice(site: Site) -> Run:
    places, take = _window(site, site.shape), site.library.take
    return lambda x, *starts: take(x, places(starts))


@rule("dynamic_update_slice")
def _dynamic_update_slice(site: Site) -> Run:
    places, write = _window(site, site.ins[1].shape), _writer(site)
    return lambda x, update, *starts: write(x, places(starts), None, update, "set")


def _window(site: Site, sizes: Dims) -> Callable[[Any], Any]:
    """Return a function from starts to the places of a window. It is moved so that it fits."""
    library, shape = site.library, site.ins[0].shape
    clip, cast = library.function("clip"), library.cast
    offsets: Any = library.full((1,) * len(shape), 0, "int64")
    for axis, stride in enumerate(_strides(shape)):
        offsets = offsets + library.indices(*sizes, of=axis) * stride
    limits = [
        (stride, n - size) for stride, n, size in zip(_strides(shape), shape, sizes, strict=True)
    ]

    def places(starts: Any) -> Any:
        found = offsets
        for start, (stride, last) in zip(starts, limits, strict=True):
            if last:
                found = found + clip(cast(start, "int64"), 0, last) * stride
        return found

    return places


def _writer(site: Site) -> Callable[..., Any]:
    """Return a function that writes at places, of which a mask says which are inside, None if all are."""
    library, xp, shape = site.library, site.library.xp, site.shape
    size = math.prod(shape)
    where, outside = library.function("where"), library.full((), size, "int64")
    spare = library.full((1,), 0, site.dtype)

    def write(x: Any, places: Any, inside: Any, updates: Any, how: str) -> Any:
        flat = xp.concat([xp.reshape(x, (-1,)), spare])  # the last element is for what is outside
        if inside is not None:
            places = where(inside, places, outside)
        flat = library.put(flat, xp.reshape(places, (-1,)), xp.reshape(updates, (-1,)), how)
        return xp.reshape(flat[:size], shape)

    return write


@rule(
    "gather", "dimension_numbers fill_value mode slice_sizes", "indices_are_sorted unique_indices"
)
def _gather(site: Site) -> Run:
    library, params = site.library, site.params
    take, where = library.take, library.function("where")
    windows, *others = params["dimension_numbers"]
    places = _places(site, site.shape, params["slice_sizes"], windows, *others)
    value = params["fill_value"]
    if value is None:
        kind = site.kind(site.dtype)
        value = {"bool": True, "float": math.nan, "complex": math.nan}.get(kind)
        if value is None:
            value = site.limits(site.dtype).min if kind == "int" else site.limits(site.dtype).max
    fill = library.full((), value, site.dtype)

    def run(x: Any, indices: Any) -> Any:
        found, inside = places(indices)
        return take(x, found) if inside is None else where(inside, take(x, found), fill)

    return run


def _scatter(how: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, shape, updated = site.library, site.shape, site.ins[2].shape
        windows, inserted, index_map, batching, indices_batching = site.params["dimension_numbers"]
        axes = [axis for axis in range(len(shape)) if axis not in (*inserted, *batching)]
        sizes = [1] * len(shape)
        for axis, window in zip(axes, windows, strict=True):
            sizes[axis] = updated[window]
        others = inserted, index_map, batching, indices_batching
        places, write = _places(site, updated, tuple(sizes), windows, *others), _writer(site)

        def run(x: Any, indices: Any, updates: Any) -> Any:
            found, inside = places(indices)
            if how == "subtract":
                return library.wrapped(write(x, found, inside, -updates, "add"), site.dtype)
            return library.wrapped(write(x, found, inside, updates, how), site.dtype)

        return run

    return make


for _ending, _how in {
    "": "set", "add": "add", "sub": "subtract", "mul": "multiply", "min": "minimum", "max": "maximum"
}.items():  # fmt: skip
    rule(
        f"scatter-{_ending} scatter_{_ending}" if _ending else "scatter",
        "dimension_numbers mode",
        "indices_are_sorted unique_indices update_jaxpr update_consts",
    )(_scatter(_how))


def _places(
    site: Site, full: Dims, sizes: Dims, windows: Dims, collapsed: Dims, index_map: Dims, batching: Dims,
    indices_batching: Dims,
) -> Callable[[Any], tuple[Any, Any]]:  # fmt: skip
    """Return a function from indices to places in the operand, and to a mask of what is inside, None if all is.

    Args:
        site: the first input is the operand, the second the indices.
        full: the shape of the places, those of the result of `gather` or the updates of `scatter`.
        sizes: the lengths of a window in the operand.
        windows: the axes of `full` that count within a window.
        collapsed: the axes of the operand that a window has no axis for.
        index_map: the axis of the operand for each index.
        batching: the axes of the operand that go along with `indices_batching`.
        indices_batching: axes of the indices.
    """
    library, operand = site.library, site.ins[0].shape
    clip, cast, reshape = library.function("clip"), library.cast, library.xp.reshape
    strides = _strides(operand)
    batch = [axis for axis in range(len(full)) if axis not in windows]
    lengths = tuple(n if axis in batch else 1 for axis, n in enumerate(full))
    kept = [axis for axis in range(len(operand)) if axis not in (*collapsed, *batching)]
    offsets: Any = library.full((1,) * len(full), 0, "int64")
    for axis, window in zip(kept, windows, strict=True):
        offsets = offsets + library.indices(*full, of=window) * strides[axis]
    for axis, other in zip(batching, indices_batching, strict=True):
        offsets = offsets + library.indices(*full, of=batch[other]) * strides[axis]
    limits = [(strides[axis], operand[axis] - sizes[axis]) for axis in index_map]
    mode = site.params["mode"]
    if mode not in ("CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"):
        raise NotImplementedError(f"the mode {mode}")

    def places(indices: Any) -> tuple[Any, Any]:
        found, inside = offsets, None
        for number, (stride, last) in enumerate(limits):
            index = reshape(cast(indices[..., number], "int64"), lengths)
            if mode == "FILL_OR_DROP":
                fits = (index >= 0) & (index <= last)
                inside = fits if inside is None else inside & fits
            found = found + clip(index, 0, last) * stride
        return library.xp.broadcast_to(found, full), inside

    return places
