"""Primitives that combine elements along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._rule import Run, Site, rule


def _reduction(name: str, of_bools: str, *, bitwise: bool) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, axes, dtype = site.library, site.params["axes"], site.dtype
        if not axes:
            return lambda x: x
        if site.is_integer(dtype) and bitwise:
            raise NotImplementedError("of bits")
        run = getattr(library.xp, of_bools if dtype == "bool" else name)
        if name in ("sum", "prod"):
            held = library.dtype(dtype)
            return lambda x: library.wrapped(run(x, axis=axes, dtype=held), dtype)
        if 0 in site.ins[0].shape:
            first = _first(site, name)
            return lambda x: library.full(site.shape, first, dtype)
        return lambda x: run(x, axis=axes)

    return make


def _first(site: Site, name: str) -> Any:
    """Return the result of nothing."""
    if site.dtype == "bool":
        return name == "min"
    if site.kind(site.dtype) == "float":
        return float("inf") if name == "min" else -float("inf")
    limits = site.limits(site.dtype)
    return limits.max if name == "min" else limits.min


for _primitive, (_name, _of_bools) in {
    "reduce_sum": ("sum", "any"), "reduce_prod": ("prod", "all"), "reduce_max": ("max", "any"),
    "reduce_min": ("min", "all"), "reduce_or": ("max", "any"), "reduce_and": ("min", "all"),
}.items():  # fmt: skip
    rule(_primitive, "axes", "out_sharding", fresh=False)(
        _reduction(_name, _of_bools, bitwise=_primitive in ("reduce_or", "reduce_and"))
    )


def _place(name: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, (axis,) = site.library, site.params["axes"]
        return lambda x: library.cast(library.first_place(name, x, axis), site.dtype)

    return make


for _primitive in ("argmax", "argmin"):
    rule(_primitive, "axes index_dtype")(_place(_primitive))


def _cumulative(name: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        library, axis, dtype = site.library, site.params["axis"], site.dtype
        flip = library.xp.flip if site.params["reverse"] else lambda x, axis: x
        if name in ("cumulative_sum", "cumulative_prod"):
            run, held = getattr(library.xp, name), library.dtype(dtype)

            def forward(x: Any) -> Any:
                return library.wrapped(run(x, axis=axis, dtype=held), dtype)

        else:
            combine, stack = library.function(name), library.xp.stack
            before = (slice(None),) * axis

            def forward(x: Any) -> Any:
                parts = [x[(*before, number, ...)] for number in range(site.shape[axis])]
                for number in range(1, len(parts)):
                    parts[number] = combine(parts[number - 1], parts[number])
                return stack(parts, axis=axis) if parts else x

        return lambda x: flip(forward(flip(x, axis=axis)), axis=axis)

    return make


for _primitive, _name in {
    "cumsum": "cumulative_sum", "cumprod": "cumulative_prod", "cummax": "maximum", "cummin": "minimum"
}.items():  # fmt: skip
    rule(_primitive, "axis reverse", fresh=False)(_cumulative(_name))


@rule("sort", "dimension num_keys", "is_stable")
def _sort(site: Site) -> Run:
    library, axis, keys = site.library, site.params["dimension"], site.params["num_keys"]
    xp = library.xp
    if not all(hasattr(xp, name) for name in ("argsort", "take_along_axis")):
        raise NotImplementedError(f"{library.backend.name} has no stable sort of it")
    # few libraries sort these well
    better = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}
    keyed = [str(spec.dtype) for spec in site.ins[:keys]]
    wider = [(n, better.get(dtype, dtype)) for n, dtype in enumerate(keyed)]
    if len(site.ins) == 1 and site.kind(site.dtype) in ("int", "uint"):
        return lambda x: [xp.sort(x, axis=axis)]

    def run(*arrays: Any) -> Any:
        order = None
        for key, dtype in reversed(wider):
            key = library.cast(arrays[key], dtype)
            ranked = key if order is None else xp.take_along_axis(key, order, axis=axis)
            found = xp.argsort(ranked, axis=axis, stable=True)
            order = found if order is None else xp.take_along_axis(order, found, axis=axis)
        return [xp.take_along_axis(x, order, axis=axis) for x in arrays]

    return run


@rule("dot_general", "dimension_numbers preferred_element_type", "out_sharding precision")
def _dot_general(site: Site) -> Run:
    library, xp, dtype = site.library, site.library.xp, site.dtype
    contracting, batching = site.params["dimension_numbers"]
    matrices = [
        _matrices(spec.shape, contracted, batched, last=not number)
        for number, (spec, contracted, batched) in enumerate(
            zip(site.ins, contracting, batching, strict=True)
        )
    ]

    def run(*arrays: Any) -> Any:
        first, second = (
            xp.reshape(xp.permute_dims(library.cast(x, dtype), order), shape)
            for x, (order, shape) in zip(arrays, matrices, strict=True)
        )
        return library.wrapped(xp.reshape(library.matmul(first, second), site.shape), dtype)

    return run


def _matrices(
    shape: tuple[int, ...], contracted: tuple[int, ...], batched: tuple[int, ...], *, last: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the order of axes, and the shape, that make matrices of an array, with what is contracted last or first."""
    free = [axis for axis in range(len(shape)) if axis not in (*contracted, *batched)]
    between, rest = (math.prod(shape[axis] for axis in axes) for axes in (contracted, free))
    order = (*batched, *free, *contracted) if last else (*batched, *contracted, *free)
    sides = (rest, between) if last else (between, rest)
    return order, (*(shape[axis] for axis in batched), *sides)
