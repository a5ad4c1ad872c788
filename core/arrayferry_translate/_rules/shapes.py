"""Primitives that move elements to other places."""

from __future__ import annotations

import itertools
from typing import Any

from ._rule import Run, Site, rule


@rule("broadcast_in_dim", "broadcast_dimensions shape", "sharding", fresh=False)
def _broadcast(site: Site) -> Run:
    xp, shape, given = site.library.xp, site.shape, site.ins[0].shape
    lengths = [1] * len(shape)
    for length, axis in zip(given, site.params["broadcast_dimensions"], strict=True):
        lengths[axis] = length
    between = tuple(lengths)
    if between == given:
        return lambda x: xp.broadcast_to(x, shape)
    return lambda x: xp.broadcast_to(xp.reshape(x, between), shape)


@rule("reshape", "dimensions new_sizes", "sharding", fresh=False)
def _reshape(site: Site) -> Run:
    xp, shape, order = site.library.xp, site.shape, site.params["dimensions"]
    if order is None:
        return lambda x: xp.reshape(x, shape)
    return lambda x: xp.reshape(xp.permute_dims(x, order), shape)


@rule("squeeze expand_dims", "dimensions", fresh=False)
def _squeeze(site: Site) -> Run:
    xp, shape = site.library.xp, site.shape
    return lambda x: xp.reshape(x, shape)


@rule("transpose", "permutation", fresh=False)
def _transpose(site: Site) -> Run:
    xp, order = site.library.xp, site.params["permutation"]
    return lambda x: xp.permute_dims(x, order)


@rule("concatenate", "dimension")
def _concatenate(site: Site) -> Run:
    xp, axis = site.library.xp, site.params["dimension"]
    return lambda *arrays: xp.concat(list(arrays), axis=axis)


@rule("stack", "axis")
def _stack(site: Site) -> Run:
    xp, axis = site.library.xp, site.params["axis"]
    return lambda *arrays: xp.stack(list(arrays), axis=axis)


@rule("unstack", "axis", fresh=False)
def _unstack(site: Site) -> Run:
    before = (slice(None),) * site.params["axis"]
    return lambda x: [x[(*before, number, ...)] for number in range(len(site.outs))]


@rule("split", "axis sizes", fresh=False)
def _split(site: Site) -> Run:
    before, ends = (
        (slice(None),) * site.params["axis"],
        [*itertools.accumulate(site.params["sizes"])],
    )
    parts = [(*before, slice(*pair), ...) for pair in itertools.pairwise([0, *ends])]
    return lambda x: [x[part] for part in parts]


@rule("tile", "reps")
def _tile(site: Site) -> Run:
    xp, times = site.library.xp, site.params["reps"]
    return lambda x: xp.tile(x, times)


@rule("slice", "limit_indices start_indices strides", fresh=False)
def _slice(site: Site) -> Run:
    params = site.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    part = tuple(map(slice, params["start_indices"], params["limit_indices"], strides))
    return lambda x: x[part]


@rule("rev", "dimensions", fresh=False)
def _rev(site: Site) -> Run:
    xp, axes = site.library.xp, site.params["dimensions"]
    return lambda x: xp.flip(x, axis=axes) if axes else x


@rule("iota", "dimension dtype shape", "sharding", fresh=False)
def _iota(site: Site) -> Run:
    library, shape = site.library, site.shape
    numbers = library.cast(library.indices(*shape, of=site.params["dimension"]), site.dtype)
    return lambda: library.xp.broadcast_to(numbers, shape)


@rule("empty empty2", "", "dtype shape out_sharding memory_space")
def _empty(site: Site) -> Run:
    return lambda: site.library.full(site.shape, 0, site.dtype)


@rule("pad", "padding_config")
def _pad(site: Site) -> Run:
    xp, shape = site.library.xp, site.shape
    froms, tos = [], []
    for length, new, (low, _, inner) in zip(
        site.ins[0].shape, shape, site.params["padding_config"], strict=True
    ):
        step = inner + 1
        first = max(0, -(low // step))  # the first element that is not cut off
        last = max(first, min(length, (new - 1 - low) // step + 1))
        froms.append(slice(first, last))
        tos.append(
            slice(low + first * step, low + (last - 1) * step + 1, step)
            if last > first
            else slice(0, 0)
        )
    source, place = tuple(froms), tuple(tos)

    def run(x: Any, value: Any) -> Any:
        padded = xp.asarray(xp.broadcast_to(value, shape), copy=True)
        if hasattr(padded, "at"):  # JAX changes no array
            return padded.at[place].set(x[source])
        padded[place] = x[source]
        return padded

    return run
