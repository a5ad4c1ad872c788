"""The rules of primitives that run nested programs: conditions and loops."""

from __future__ import annotations

from typing import Any

from arrayferry.typing import AnyTree

from ._rule import Run, Site, rule


@rule("cond", fresh=False)
def _cond(site: Site, branches: Any) -> Run:
    branch_runs = [site.bind(branch) for branch in branches]
    library: Any = site.library
    last_index = len(branch_runs) - 1
    output_shapes = [spec.shape for spec in site.outs]
    if library.records:
        return lambda index, *arrays: library.switch(index, branch_runs, arrays, output_shapes)
    return lambda index, *arrays: branch_runs[max(0, min(int(index), last_index))](list(arrays))


@rule("while", fresh=False)
def _while(
    site: Site, body_jaxpr: Any, body_nconsts: int, cond_jaxpr: Any, cond_nconsts: int
) -> Run:
    """Return a function that runs a loop.

    Under `vmap`, the condition is an array. The loop then runs until the whole condition is False, and changes only
    the rows for which the condition is True.
    """
    library: Any = site.library
    condition, body = site.bind(cond_jaxpr), site.bind(body_jaxpr)
    body_at, end = cond_nconsts, cond_nconsts + body_nconsts
    rows_shape = cond_jaxpr.specs[cond_jaxpr.outputs[0]].shape
    any_, where, reshape = site.xp.any, library.function("where"), site.xp.reshape
    mask_shapes = [rows_shape + (1,) * (len(spec.shape) - len(rows_shape)) for spec in site.outs]

    def run(*arrays: AnyTree) -> Any:
        cond_consts, body_consts, values = arrays[:body_at], arrays[body_at:end], list(arrays[end:])

        def condition_of(values: AnyTree) -> Any:
            return condition([*cond_consts, *values])[0]

        def next_values(values: AnyTree, going: Any) -> Any:
            new_values = body([*body_consts, *values])
            if not rows_shape:
                return new_values
            masks = (reshape(going, shape) for shape in mask_shapes)
            return [where(mask, x, y) for mask, x, y in zip(masks, new_values, values, strict=True)]

        if library.records:
            row_axes = tuple(range(len(rows_shape)))
            return library.loop(
                lambda values: any_(condition_of(values), axis=row_axes) if rows_shape else condition_of(values),
                lambda values: next_values(values, condition_of(values)), values,
            )  # fmt: skip
        while bool(any_(condition_flags := condition_of(values))):
            values = next_values(values, condition_flags)
        return values

    return run


@rule("scan", "linear unroll _split_transpose ft_in ft_out", fresh=False)
def _scan(
    site: Site, jaxpr: Any, length: int, num_carry: int, num_consts: int, reverse: bool
) -> Run:
    library: Any = site.library
    body, stack, full = site.bind(jaxpr), site.xp.stack, library.full
    row_order = range(length)[:: -1 if reverse else 1]
    carried_end, stacked_specs = num_consts + num_carry, site.outs[num_carry:]

    def run(*arrays: AnyTree) -> Any:
        body_consts, carry, xs = (
            arrays[:num_consts],
            list(arrays[num_consts:carried_end]),
            arrays[carried_end:],
        )
        if library.records and length:
            full_body = lambda inner_arrays: body([*body_consts, *inner_arrays])  # noqa: E731
            output_shapes = [spec.shape for spec in site.outs]
            return library.scan(full_body, carry, xs, length, output_shapes, reverse=reverse)
        rows: list[Any] = [None] * len(row_order)
        for row_index in row_order:
            outputs = body([*body_consts, *carry, *(x[row_index, ...] for x in xs)])
            carry, rows[row_index] = outputs[:num_carry], outputs[num_carry:]
        if not rows:
            return carry + [full(spec.shape, 0, spec.dtype) for spec in stacked_specs]
        return (
            carry + [stack(column) for column in zip(*rows, strict=True)]
            if stacked_specs
            else carry
        )

    return run
