"""The rules of primitives that combine or sort elements along axes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from arrayferry.typing import AnyArray, AnyTree

from ._rule import Run, Site, rule
from .shapes import along

Dims = tuple[int, ...]
REDUCTIONS = {
    "reduce_sum": "sum", "reduce_prod": "prod", "reduce_max": "max", "reduce_min": "min", "reduce_or": "max",
    "reduce_and": "min",
}  # fmt: skip
CUMULATIVE = {
    "cumsum": "cumulative_sum", "cumprod": "cumulative_prod", "cummax": "maximum", "cummin": "minimum"
}  # fmt: skip


@rule(" ".join(REDUCTIONS), "out_sharding", fresh=False)
def _reduction(site: Site, axes: Dims) -> Run:
    library, dtype, xp_name = site.library, site.dtype, REDUCTIONS[site.name]
    if not axes:
        return lambda x: x
    if site.is_integer(dtype) and site.name in ("reduce_or", "reduce_and"):
        raise NotImplementedError("only arrays of bools are supported, not the bits of integers")
    bool_names = {"max": "any", "min": "all"}
    run = partial(getattr(site.xp, bool_names[xp_name] if dtype == "bool" else xp_name), axis=axes)
    if xp_name in ("sum", "prod"):
        wide_dtype = library.dtype(dtype)
        return lambda x: library.wrapped(run(x, dtype=wide_dtype), dtype)
    if 0 in site.ins[0].shape:
        initial = site.edges(dtype)[xp_name == "min"]
        return lambda x: library.full(site.shape, initial, dtype)
    return run


@rule("argmax argmin")
def _place(site: Site, axes: Dims, index_dtype: str) -> Run:
    find_place, cast = getattr(site.xp, site.name), site.library.cast
    dtype, (axis,) = site.ins[0].dtype, axes
    if dtype == "bool":  # few libraries support argmax and argmin of bools
        return lambda x: cast(find_place(cast(x, "uint8"), axis=axis), index_dtype)
    return lambda x: cast(find_place(x, axis=axis), index_dtype)


@rule(" ".join(CUMULATIVE), fresh=False)
def _cumulative(site: Site, axis: int, reverse: bool) -> Run:
    library, dtype, xp_name = site.library, site.dtype, CUMULATIVE[site.name]
    flip = site.xp.flip if reverse else lambda x, axis: x
    if xp_name.startswith("cumulative"):
        run = partial(getattr(site.xp, xp_name), axis=axis, dtype=library.dtype(dtype))
        return lambda x: flip(library.wrapped(run(flip(x, axis=axis)), dtype), axis=axis)
    combine, stack = library.function(xp_name), site.xp.stack
    split_rows = along(axis, range(site.shape[axis]))

    def cumulative_extreme(x: AnyArray) -> Any:
        row_arrays = split_rows(flip(x, axis=axis))
        for row_index in range(1, len(row_arrays)):
            row_arrays[row_index] = combine(row_arrays[row_index - 1], row_arrays[row_index])
        return flip(stack(row_arrays, axis=axis), axis=axis) if row_arrays else x

    return cumulative_extreme


@rule("sort", "is_stable")
def _sort(site: Site, dimension: int, num_keys: int) -> Run:
    library, xp, axis = site.library, site.xp, dimension
    if not all(hasattr(xp, function_name) for function_name in ("argsort", "take_along_axis")):
        raise NotImplementedError(f"{library.backend.name} has no stable sort")
    if len(site.ins) == 1 and site.is_integer(site.dtype):
        return lambda x: [xp.sort(x, axis=axis)]
    # many libraries cannot sort these dtypes
    sortable_dtypes = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}
    key_dtypes: list[tuple[int, Any]] = [
        (n, sortable_dtypes.get(x.dtype, x.dtype)) for n, x in enumerate(site.ins[:num_keys])
    ]

    def run(*arrays: AnyTree) -> Any:
        order = None
        for key_index, dtype in reversed(key_dtypes):
            key = library.cast(arrays[key_index], dtype)
            ordered_key = key if order is None else xp.take_along_axis(key, order, axis=axis)
            positions = xp.argsort(ordered_key, axis=axis, stable=True)
            order = positions if order is None else xp.take_along_axis(order, positions, axis=axis)
        return [xp.take_along_axis(x, order, axis=axis) for x in arrays]

    return run


@rule("dot_general", "out_sharding precision")
def _dot_general(site: Site, dimension_numbers: Any, preferred_element_type: Any) -> Run:
    library, xp, dtype, shape = site.library, site.xp, site.dtype, site.shape
    wide_dtype = max(dtype, *(spec.dtype for spec in site.ins), key=site.bits)
    x_layout, y_layout = (
        _matrices(*spec_axes, contracted_last=not index)
        for index, spec_axes in enumerate(zip(site.ins, *dimension_numbers, strict=True))
    )

    def matrices(x: AnyArray, order: Dims, sizes: Dims) -> Any:
        return xp.reshape(xp.permute_dims(library.cast(x, wide_dtype), order), sizes)

    def run(x: AnyArray, y: AnyArray) -> Any:
        product = library.matmul(matrices(x, *x_layout), matrices(y, *y_layout))
        return library.wrapped(xp.reshape(library.cast(product, dtype), shape), dtype)

    return run


def _matrices(
    spec: Any, contracted: Dims, batched: Dims, *, contracted_last: bool
) -> tuple[Dims, Dims]:
    """Return the order of axes and the shape with which an array becomes a batch of matrices."""
    free_axes = tuple(n for n in range(len(spec.shape)) if n not in (*contracted, *batched))
    sides = (free_axes, contracted) if contracted_last else (contracted, free_axes)
    sizes = (math.prod(spec.shape[axis] for axis in side) for side in sides)
    return (*batched, *sides[0], *sides[1]), (*(spec.shape[axis] for axis in batched), *sizes)
