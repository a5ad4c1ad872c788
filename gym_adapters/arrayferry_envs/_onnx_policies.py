"""A module of PyTorch in an ONNX graph. This module imports ndonnx."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from typing import Any

import ndonnx as ndx
import numpy as np

import arrayferry as af
from arrayferry.extending import dtype_name


def by_module(module: Any, params: Any, observation: Any) -> Any:
    """Return the actions of a module of PyTorch, by PyTorch's own exporter."""
    import spox
    import torch

    module = copy.deepcopy(module).cpu().eval()
    if params is not None:
        module.load_state_dict(af.convert(params, "torch", unsupported="keep"))
    given = named({"observation": observation})
    dtypes = [(x.shape, dtype_name(x.dtype)) for x in given.values()]
    zeros = af.flatten(observation)[1].unflatten([
        af.convert(np.zeros(*each), "torch") for each in dtypes
    ])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch to itself
        # PyTorch takes a dict at the end of other arguments for keywords
        keyword = isinstance(zeros, dict) and next(
            iter(inspect.signature(module.forward).parameters)
        )
        own: Any = ((), {keyword: zeros}) if keyword else ((zeros,), {})
        program: Any = torch.onnx.export(module, own[0], kwargs=own[1], dynamo=True, verbose=False)
    graph = program.model_proto.graph
    operations = {node.op_type for node in graph.node}
    draws = [x for x in operations if x.startswith(("Random", "Bernoulli", "Multinomial"))]
    if draws:
        raise of_policy(f"it draws random numbers ({', '.join(draws)}), which cannot be seeded")
    pairs = zip(graph.input, given.values(), strict=True)
    inputs = {each.name: x.unwrap_spox() for each, x in pairs}
    results = spox.inline(program.model_proto)(**inputs)
    with torch.no_grad():
        layout = af.flatten(module(zeros))[1]
    return layout.unflatten([ndx.asarray(results[each.name]) for each in graph.output])


def of_policy(reason: str) -> af.OptionError:
    return af.OptionError(
        f"the policy cannot be exported: {reason}",
        remedy="Write it in Array API code, with xp = arrayferry.namespace_of(observation) and its weights in policy_params. "
        "A module of PyTorch is exported as it is; a policy of JAX is not.",
    )


def named(tree: Any) -> dict[str, Any]:
    """Return the arrays of a dict of trees by their paths, with dots: "state.position"."""
    arrays, layout = af.flatten(tree)
    paths = (re.sub(r"\['?(.*?)'?\]", r".\1", path).lstrip(".") for path in layout.paths)
    found = dict(zip(paths, arrays, strict=True))
    if len(found) < len(arrays):
        raise af.OptionError(
            f"two of {layout.paths!r:.200} have the same name with dots", remedy="Rename a key."
        )
    return found
