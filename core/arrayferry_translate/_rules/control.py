"""The rules of primitives that run nested programs: conditions and loops."""

from __future__ import annotations

from typing import Any

from arrayferry.typing import AnyTree

from ._rule import Run, Site, rule


@rule("cond", fresh=False)
def _cond(site: Site, branches: Any) -> Run:
    runs = [site.bind(branch) for branch in branches]
    library: Any = site.library
    last = len(runs) - 1
    shapes = [spec.shape for spec in site.outs]
    if library.records:
        return lambda index, *arrays: library.switch(index, runs, arrays, shapes)
    return lambda index, *arrays: runs[max(0, min(int(index), last))](list(arrays))


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
    first, second = cond_nconsts, cond_nconsts + body_nconsts
    rows = cond_jaxpr.specs[cond_jaxpr.outputs[0]].shape
    any_, where, reshape = site.xp.any, library.function("where"), site.xp.reshape
    shapes = [rows + (1,) * (len(spec.shape) - len(rows)) for spec in site.outs]

    def run(*arrays: AnyTree) -> Any:
        of_condition, of_body, values = arrays[:first], arrays[first:second], list(arrays[second:])

        def going(values: AnyTree) -> Any:
            return condition([*of_condition, *values])[0]

        def turn(values: AnyTree, going: Any) -> Any:
            new = body([*of_body, *values])
            if not rows:
                return new
            masks = (reshape(going, shape) for shape in shapes)
            return [where(mask, x, old) for mask, x, old in zip(masks, new, values, strict=True)]

        if library.records:
            axes = tuple(range(len(rows)))
            return library.loop(
                lambda values: any_(going(values), axis=axes) if rows else going(values),
                lambda values: turn(values, going(values)), values,
            )  # fmt: skip
        while bool(any_(flags := going(values))):
            values = turn(values, flags)
        return values

    return run


@rule("scan", "linear unroll _split_transpose ft_in ft_out", fresh=False)
def _scan(
    site: Site, jaxpr: Any, length: int, num_carry: int, num_consts: int, reverse: bool
) -> Run:
    library: Any = site.library
    body, stack, full = site.bind(jaxpr), site.xp.stack, library.full
    order = range(length)[:: -1 if reverse else 1]
    carried, stacked = num_consts + num_carry, site.outs[num_carry:]

    def run(*arrays: AnyTree) -> Any:
        of_body, values, xs = (
            arrays[:num_consts],
            list(arrays[num_consts:carried]),
            arrays[carried:],
        )
        if library.records and length:
            whole = lambda inner: body([*of_body, *inner])  # noqa: E731
            shapes = [spec.shape for spec in site.outs]
            return library.scan(whole, values, xs, length, shapes, reverse=reverse)
        rows: list[Any] = [None] * len(order)
        for number in order:
            results = body([*of_body, *values, *(x[number, ...] for x in xs)])
            values, rows[number] = results[:num_carry], results[num_carry:]
        if not rows:
            return values + [full(spec.shape, 0, spec.dtype) for spec in stacked]
        return values + [stack(column) for column in zip(*rows, strict=True)] if stacked else values

    return run
