"""Primitives that run programs."""

from __future__ import annotations

from typing import Any

from ._rule import Run, Site, rule


@rule("cond", "branches", fresh=False)
def _cond(site: Site) -> Run:
    runs = [site.bind(branch) for branch in site.params["branches"]]
    last = len(runs) - 1
    return lambda index, *arrays: runs[max(0, min(int(index), last))](list(arrays))


@rule("while", "body_jaxpr body_nconsts cond_jaxpr cond_nconsts", fresh=False)
def _while(site: Site) -> Run:
    """Run a loop. Where the condition has rows, those whose condition is false keep their values."""
    library, params = site.library, site.params
    condition, body = site.bind(params["cond_jaxpr"]), site.bind(params["body_jaxpr"])
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    rows = params["cond_jaxpr"].specs[params["cond_jaxpr"].outputs[0]].shape
    where, reshape = library.function("where"), library.xp.reshape
    shapes = [rows + (1,) * (len(spec.shape) - len(rows)) for spec in site.outs]

    def run(*arrays: Any) -> Any:
        of_condition, of_body, values = arrays[:first], arrays[first:second], list(arrays[second:])
        while bool(library.xp.any(going := condition([*of_condition, *values])[0])):
            new = body([*of_body, *values])
            if rows:
                masks = (reshape(going, shape) for shape in shapes)
                new = [where(mask, x, old) for mask, x, old in zip(masks, new, values, strict=True)]
            values = new
        return values

    return run


@rule(
    "scan",
    "jaxpr length num_carry num_consts reverse",
    "linear unroll _split_transpose ft_in ft_out",
    fresh=False,
)
def _scan(site: Site) -> Run:
    library, params = site.library, site.params
    body, stack = site.bind(params["jaxpr"]), library.xp.stack
    constants, carried = params["num_consts"], params["num_consts"] + params["num_carry"]
    order = range(params["length"])[:: -1 if params["reverse"] else 1]
    stacked = site.outs[params["num_carry"] :]

    def run(*arrays: Any) -> Any:
        of_body, values, xs = arrays[:constants], list(arrays[constants:carried]), arrays[carried:]
        rows: list[Any] = [None] * len(order)
        for number in order:
            made = body([*of_body, *values, *(x[number, ...] for x in xs)])
            values, rows[number] = made[: len(values)], made[len(values) :]
        if not rows:
            return values + [library.full(spec.shape, 0, spec.dtype) for spec in stacked]
        return values + [stack(column) for column in zip(*rows, strict=True)] if stacked else values

    return run
