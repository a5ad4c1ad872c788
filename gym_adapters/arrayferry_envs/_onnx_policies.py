"""Policies in an ONNX graph, and beside it: functions, and modules of PyTorch. This module imports ndonnx."""

from __future__ import annotations

import re
import warnings
from typing import Any

import ndonnx as ndx
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry._utilities.options import missing_package
from arrayferry.extending import dtype_name, map_arrays

from ._contract.policies import check_arguments, check_policy, checked_results
from ._onnx_numbers import OF_NUMPY, XP, exact
from ._policies.policies import is_module


def acting(policy: Any, params: Any) -> Any:
    """Return a function that acts by a policy: `act(xp, observation, rng) -> action`, with XP in the graph, or in NumPy.

    Raises:
        arrayferry.OptionError: it is no policy that can be exported.
    """
    agent = policy if is_module(policy) else getattr(policy, "policy", None)
    if is_module(agent) and hasattr(agent, "_predict"):  # of Stable-Baselines3
        return _by_module(_predicting(agent, policy), params, "policy.")
    check_policy(policy)
    if is_module(policy):
        return _by_module(policy, params)
    origins = {kind.__module__.partition(".")[0] for kind in type(policy).__mro__}
    if origins & {"flax", "equinox"}:  # functions of JAX refuse arrays of ndonnx by themselves
        raise of_policy(f"{type(policy).__name__} computes in JAX, which takes no arrays of ndonnx")
    check_arguments("export", policy, None)
    constants = map_arrays(lambda x: af.convert(x, "numpy"), params)

    def act(xp: Any, observation: Any, rng: Any) -> Any:
        with exact(**OF_NUMPY):
            result = policy(map_arrays(xp.asarray, constants), observation, rng)
        return checked_results(result, "action", "extras")[0]

    return act


def _by_module(module: Any, params: Any, prefix: str = "") -> Any:
    """Return such a function for a module of PyTorch, which stays as it is. The names of parameters lack a prefix."""
    import torch
    from torch.distributions import Distribution

    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if params is not None:
        given, saved = af.convert(params, "torch", unsupported="keep"), module.state_dict()
        own = {name: x for name, x in own.items() if name not in saved}
        own |= {prefix + name: x for name, x in given.items()}
    state = {name: x.detach().cpu().clone() for name, x in own.items()}

    def call(observation: Any) -> Any:
        return torch.func.functional_call(module, state, (observation,), strict=True)

    def act(xp: Any, observation: Any, rng: Any) -> Any:
        modes, checks = [(x, x.training) for x in module.modules()], Distribution._validate_args
        try:
            module.eval()
            Distribution.set_default_validate_args(False)  # a check depends on values
            with torch.no_grad(), torch.random.fork_rng([]):
                if xp is XP:
                    return _in_graph(call, state, observation)
                return af.convert(call(af.convert(observation, "torch")), "numpy")
        finally:
            Distribution.set_default_validate_args(checks)
            for each, mode in modes:
                each.training = mode

    return act


def _in_graph(call: Any, state: dict[str, Any], observation: Any) -> Any:
    """Return actions by PyTorch's own exporter.

    Args:
        call: takes an observation of PyTorch, and returns actions.
        state: the parameters and buffers that it uses.
        observation: the observation of ndonnx.
    """
    import spox
    import torch

    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_package("the exporter of PyTorch", "onnxscript", error) from error
    given, before = named({"observation": observation}), dict(state)

    def filled(number: float) -> Any:
        arrays = [np.full(x.shape, number).astype(dtype_name(x.dtype)) for x in given.values()]
        return af.flatten(observation)[1].unflatten(af.convert(arrays, "torch"))

    def called(number: float) -> Any:
        torch.default_generator.manual_seed(0)
        return af.flatten(call(filled(number)))

    (first, layout), _, (again, _) = (called(number) for number in (0, 0.9, 0))
    written = [name for name, x in state.items() if x is not before[name] or x._version]
    same = (np.array_equal(x, y, equal_nan=True) for x, y in zip(first, again, strict=True))
    if written or not all(same):
        raise of_policy(
            f"a call changes what later ones return {written}, and a file keeps nothing"
        )
    module: Any = torch.nn.Module()
    module.forward = lambda observation: call(observation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch to itself
        options: Any = {"kwargs": {"observation": filled(0)}, "dynamo": True, "verbose": False}
        try:
            program: Any = torch.onnx.export(module, (), **options)
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).strip().partition("\n")[0]
            raise of_policy(f"PyTorch cannot export it: {cause}", ALONE) from error
    graph = program.model_proto.graph
    random = "Random", "Bernoulli", "Multinomial", "Dropout"
    draws = {node.op_type for node in graph.node if node.op_type.startswith(random)}
    if draws:
        reason = f"it draws random numbers ({', '.join(draws)}), which cannot be seeded"
        raise of_policy(reason, ALONE)
    pairs = zip(graph.input, given.values(), strict=True)
    inputs = {each.name: x.unwrap_spox() for each, x in pairs}
    results = spox.inline(program.model_proto)(**inputs)
    return layout.unflatten([ndx.asarray(results[each.name]) for each in graph.output])


def _predicting(policy: Any, model: Any) -> Any:
    """Return a module that does what `predict` of Stable-Baselines3 does, with the statistics of a `VecNormalize`."""
    import torch

    known: Any
    space, known = policy.action_space, getattr(model, "get_vec_normalize_env", bool)()
    moments = known.obs_rms if known and known.norm_obs else {}
    moments = moments if isinstance(moments, dict) else {None: moments}

    class Predicting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, observation: Any) -> Any:
            for key, own in moments.items():
                x = observation if key is None else observation[key]
                mean, var = map(torch.as_tensor, (own.mean, own.var))
                x = (x - mean) / (var + known.epsilon).sqrt()
                x = x.clamp(-known.clip_obs, known.clip_obs)
                observation = x.float() if key is None else {**observation, key: x.float()}
            action = policy._predict(observation, deterministic=True).reshape(-1, *space.shape)
            if not isinstance(space, spaces.Box):
                return action.to(getattr(torch, space.dtype.name))
            low, high = map(torch.as_tensor, (space.low, space.high))
            return low + 0.5 * (action + 1) * (high - low) if policy.squash_output else action

    return Predicting()


IN_ARRAY_API = (
    "Write it in Array API code, with xp = arrayferry.namespace_of(observation) and its weights in policy_params. "
    "A module of PyTorch is exported as it is; a policy of JAX is not."
)
ALONE = "Let it return an action that follows from the observation and the weights alone."


def of_policy(reason: str, remedy: str = IN_ARRAY_API) -> af.OptionError:
    return af.OptionError(f"the policy cannot be exported: {reason}", remedy=remedy)


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
