"""Policies inside and outside of an ONNX graph: functions, and modules of PyTorch. This module imports ndonnx."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from functools import partial
from typing import Any

import ndonnx as ndx
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry._utilities.options import missing_package
from arrayferry.extending import dtype_name, map_arrays
from arrayferry.typing import AnyTree, Namespace
from arrayferry_gym.extending import namespace

from ._contract.policies import check_arguments, check_policy, checked_results
from ._contract.raw_random import RawRandom
from ._onnx_numbers import OF_NUMPY, XP, exact
from ._policies.policies import is_module


def acting(policy: Any, params: AnyTree, examples: Any) -> Any:
    """Return `act(xp, observation, rng) -> action`, which calls a policy: in the graph if xp is XP, else in NumPy.

    Args:
        policy: as for `export`.
        params: the parameters of the policy, as for `export`.
        examples: batches of observations in NumPy to call the policy with: two for an export, one for a check.

    Raises:
        arrayferry.OptionError: the policy cannot be exported.
    """
    agent = policy if is_module(policy) else getattr(policy, "policy", None)
    # policies of Stable-Baselines3 have the method `_predict`
    if is_module(agent) and hasattr(agent, "_predict"):
        act = _by_module(_predicting(agent, policy), params, "policy.", examples)
    elif is_module(policy):
        act = _by_module(policy, params, "", examples)
    else:
        act = _by_function(policy, params, examples[0])
    if len(examples) == 2:
        _check_repeats(act, *examples)
    return act


def _check_repeats(act: Any, one: Any, other: Any) -> None:
    xp = namespace(af.registry.backend("numpy"))

    def action_arrays(observation: AnyTree) -> Any:
        return af.flatten(act(xp, observation, _halves(xp)))[0]

    first_arrays, _, repeated_arrays = map(action_arrays, (one, other, one))
    if not all(map(partial(np.array_equal, equal_nan=True), first_arrays, repeated_arrays)):
        reason = "a call changes what later calls return, or draws numbers by itself"
        raise of_policy(f"{reason}, which an ONNX file cannot reproduce", ALONE)


def _halves(xp: Namespace) -> RawRandom:
    return RawRandom(xp, "policy", lambda name, kind, shape, dtype: np.full(shape, 0.5, dtype))


def _by_function(policy: Any, params: AnyTree, example: AnyTree) -> Any:
    check_policy(policy)
    if "jax" in sys.modules:
        from ._onnx_jax import by_jax, in_jax

        if in_jax(policy, params, example, _halves(namespace(af.registry.backend("numpy")))):
            return by_jax(policy, params, example, XP)
    check_arguments("export", policy, None)
    constants = map_arrays(lambda x: af.convert(x, "numpy"), params)

    def act(xp: Namespace, observation: AnyTree, rng: Any) -> Any:
        # the arguments are copied, since NumPy functions may write to them
        arguments = map_arrays(lambda x: xp.asarray(x, copy=True), (constants, observation))
        with exact(**OF_NUMPY):
            result = policy(*arguments, rng)
        return checked_results(result, "action", "extras")[0]

    return act


def _by_module(module: Any, params: AnyTree, prefix: str = "", examples: Any = None) -> Any:
    """Return what `acting` returns, for a module of PyTorch. `prefix` is added to the names in `params`."""
    import torch
    from torch.distributions import Distribution

    # a shared module has one name here, since functional_call would not restore it under two
    state = {}
    for path, submodule in module.named_modules():
        for name, x in (
            *submodule.named_parameters("", False, False),
            *submodule.named_buffers("", False, False),
        ):
            state[f"{path}.{name}".lstrip(".")] = x.detach().cpu().clone()
    if params is not None:
        converted = af.convert(params, "torch", unsupported="keep")
        passed, saved = {prefix + name: x for name, x in converted.items()}, module.state_dict()
        if passed.keys() != saved.keys():
            raise of_policy(
                f"policy_params has {sorted(passed)!r:.200}, but the module needs {sorted(saved)!r:.200}",
                "Pass the state_dict() of such a module, or leave out policy_params.",
            )
        state |= {name: passed[name].detach().cpu().clone() for name in state.keys() & saved.keys()}
    state_before = dict(state)

    def call(observation: AnyTree) -> Any:
        copies = map_arrays(lambda x: x.clone(), observation)  # modules may write to observations
        return torch.func.functional_call(module, state, (copies,), tie_weights=False)

    def act(xp: Namespace, observation: AnyTree, rng: Any) -> Any:
        # exact() has a lock, so that only one thread at a time changes the modules
        with exact(), contextlib.ExitStack() as exit_stack:
            for submodule in module.modules():
                exit_stack.callback(setattr, submodule, "training", submodule.training)
            exit_stack.callback(Distribution.set_default_validate_args, Distribution._validate_args)
            # the checks of a Distribution depend on values, which a graph does not have
            Distribution.set_default_validate_args(False)
            module.eval()
            exit_stack.enter_context(torch.no_grad())
            exit_stack.enter_context(torch.random.fork_rng([]))
            torch.default_generator.manual_seed(0)
            if xp is XP:
                return _in_graph(call, examples[0], observation)
            action = af.convert(call(af.convert(observation, "torch")), "numpy")
        changed = [name for name, x in state.items() if x is not state_before[name] or x._version]
        if changed:
            reason = f"a call changes what later calls return {changed}"
            raise of_policy(f"{reason}, which an ONNX file cannot reproduce", ALONE)
        return action

    return act


def _in_graph(call: Any, example: AnyTree, observation: AnyTree) -> Any:
    """Add a function of PyTorch to the graph with PyTorch's exporter, and return its actions.

    Args:
        call: the function, which maps a batch of observations in PyTorch to actions.
        example: a batch of observations in NumPy.
        observation: the batch of observations in ndonnx.
    """
    import spox
    import torch

    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise missing_package("the exporter of PyTorch", "onnxscript", error) from error
    arrays, layout = af.flatten(observation)
    pairs = zip(af.flatten(example)[0], arrays, strict=True)
    examples = [np.resize(x, y.shape).astype(dtype_name(y.dtype)) for x, y in pairs]
    tensors = layout.unflatten(af.convert(examples, "torch"))
    module: Any = torch.nn.Module()
    module.forward = lambda observation: call(observation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of its own code
        options: Any = {"kwargs": {"observation": tensors}, "dynamo": True, "verbose": False}
        try:
            program: Any = torch.onnx.export(module, (), **options)
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).strip().partition("\n")[0]
            raise of_policy(f"PyTorch cannot export the module: {cause}", ALONE) from error
    graph = program.model_proto.graph
    random_ops = "Random", "Bernoulli", "Multinomial", "Dropout"
    drawing_ops = {node.op_type for node in graph.node if node.op_type.startswith(random_ops)}
    if drawing_ops:
        reason = f"it draws random numbers ({', '.join(drawing_ops)}), which cannot be seeded"
        raise of_policy(reason, ALONE)
    pairs = zip(graph.input, arrays, strict=True)
    inputs = {value.name: x.unwrap_spox() for value, x in pairs}
    results = spox.inline(program.model_proto)(**inputs)
    spec = af.flatten(call(tensors))[1]
    return spec.unflatten([ndx.asarray(results[value.name]) for value in graph.output])


def _predicting(policy: Any, model: Any) -> Any:
    """Return a module that computes `predict` of Stable-Baselines3, after the normalization by a `VecNormalize`."""
    import torch

    space, normalizer = policy.action_space, normalizer_of(model)
    moments = normalizer.obs_rms if normalizer else {}
    moments = moments if isinstance(moments, dict) else {None: moments}
    obs_space = policy.observation_space
    for key, statistics in moments.items():
        expected_shape = (obs_space if key is None else obs_space[key]).shape
        if statistics.mean.shape != expected_shape:
            raise of_policy(
                f"its VecNormalize has statistics of shape {statistics.mean.shape} inside other wrappers, but the policy's observations have the shape {expected_shape}",
                "Put VecNormalize outside the wrappers that change observations, or export model.policy.",
            )

    class Predicting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, observation: AnyTree) -> Any:
            for key, statistics in moments.items():
                x = observation if key is None else observation[key]
                mean, var = map(torch.as_tensor, (statistics.mean, statistics.var))
                x = (x - mean) / (var + normalizer.epsilon).sqrt()
                x = x.clamp(-normalizer.clip_obs, normalizer.clip_obs)
                observation = x.float() if key is None else {**observation, key: x.float()}
            action = policy._predict(observation, deterministic=True).reshape(-1, *space.shape)
            if not isinstance(space, spaces.Box):
                return action.to(getattr(torch, space.dtype.name))
            low, high = map(torch.as_tensor, (space.low, space.high))
            return low + 0.5 * (action + 1) * (high - low) if policy.squash_output else action

    return Predicting()


def normalizer_of(model: Any) -> Any:
    """Return the `VecNormalize` that normalizes the observations of a model of Stable-Baselines3, or None."""
    normalizer: Any = getattr(model, "get_vec_normalize_env", bool)()
    return normalizer if normalizer and normalizer.norm_obs else None


IN_ARRAY_API = (
    "Write the policy in Array API code, with xp = arrayferry.namespace_of(observation) and weights in policy_params. "
    "Or pass a module of PyTorch or a policy in JAX."
)
ALONE = "Let the policy compute the action from the observation and the weights alone."


def of_policy(reason: str, remedy: str = IN_ARRAY_API) -> af.OptionError:
    return af.OptionError(f"the policy cannot be exported: {reason}", remedy=remedy)


def dotted(path: str) -> str:
    """Return a path such as "['state'][0]" with dots instead of brackets: "state.0"."""
    return re.sub(r"\['?(.*?)'?\]", r".\1", path).lstrip(".")


def named(tree: AnyTree) -> dict[str, Any]:
    """Return a dict of the arrays in a dict of trees.

    The keys of the result are the paths of the arrays, written with dots, such as "state.position".
    """
    arrays, layout = af.flatten(tree)
    by_name = dict(zip(map(dotted, layout.paths), arrays, strict=True))
    if len(by_name) < len(arrays):
        raise af.OptionError(
            f"two of the paths {layout.paths!r:.200} become the same name in ONNX, which has dots instead of brackets",
            remedy="Rename a key.",
        )
    return by_name
