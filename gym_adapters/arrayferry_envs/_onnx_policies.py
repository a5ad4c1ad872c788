"""Policies in an ONNX graph, and beside it: functions, and modules of PyTorch. This module imports ndonnx."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import deque
from collections.abc import Iterator
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
    agent = getattr(policy, "policy", policy)
    if is_module(agent) and hasattr(agent, "squash_output"):
        return _Module(_predicting(agent, policy), params, "policy.")
    check_policy(policy)
    if is_module(policy):
        return _Module(policy, params)
    _refuse_jax(policy)
    check_arguments("export", policy, None)
    constants = map_arrays(lambda x: af.convert(x, "numpy"), params)

    def act(xp: Any, observation: Any, rng: Any) -> Any:
        with exact(**OF_NUMPY):
            result = policy(map_arrays(xp.asarray, constants), observation, rng)
        return checked_results(result, "action", "extras")[0]

    return act


def _refuse_jax(policy: Any) -> None:
    """Refuse modules of Flax and Equinox. Functions of JAX refuse arrays of ndonnx by themselves."""
    if any(each.__module__.partition(".")[0] in ("flax", "equinox") for each in type(policy).__mro__):
        raise of_policy(f"{type(policy).__name__} computes in JAX, which takes no arrays of ndonnx")


class _Module:
    """A module of PyTorch at work, which stays as it is.

    Args:
        module: the module.
        params: its parameters, None for its own.
        prefix: what the names of `params` lack.
    """

    def __init__(self, module: Any, params: Any, prefix: str = "") -> None:
        self._module = module
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        if params is not None:
            given = af.convert(params, "torch", unsupported="keep")
            kept = own.keys() - {name for name in module.state_dict() if name.startswith(prefix)}
            own = {name: own[name] for name in kept} | {f"{prefix}{k}": x for k, x in given.items()}
        self._state = {name: x.detach().cpu().clone() for name, x in own.items()}

    def __call__(self, xp: Any, observation: Any, rng: Any) -> Any:
        import torch

        with self._evaluating(), torch.no_grad():
            if xp is XP:
                return self._in_graph(observation)
            return af.convert(self._call(af.convert(observation, "torch")), "numpy")

    def _call(self, observation: Any) -> Any:
        import torch

        return torch.func.functional_call(self._module, self._state, (observation,), strict=True)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Let the module be in the mode of evaluation, and its distributions check nothing, which has no graph."""
        from torch.distributions import Distribution

        modes = [(each, each.training) for each in self._module.modules()]
        checks = Distribution._validate_args
        Distribution.set_default_validate_args(False)
        self._module.eval()
        try:
            yield
        finally:
            Distribution.set_default_validate_args(checks)
            for each, mode in modes:
                each.training = mode

    def _in_graph(self, observation: Any) -> Any:
        """Return the actions, by PyTorch's own exporter."""
        import spox
        import torch

        try:
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise missing_package("the exporter of PyTorch", "onnxscript", error) from error
        given = named({"observation": observation})
        dtypes = [(x.shape, dtype_name(x.dtype)) for x in given.values()]
        zeros = af.flatten(observation)[1].unflatten([
            af.convert(np.zeros(*each), "torch") for each in dtypes
        ])  # fmt: skip
        layout = af.flatten(self._call(zeros))[1]
        before = self._marks()  # with caches that a first call fills
        self._call(zeros)
        for (name, *old), (_, *new) in zip(before, self._marks(), strict=True):
            if len(old) != len(new) or any(x is not y for x, y in zip(old, new, strict=True)):
                raise of_policy(f"each call changes {name}, and a file has nothing that lasts")
        called = torch.nn.Module()
        called.forward = lambda observation: self._call(observation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch to itself
            options: Any = {"kwargs": {"observation": zeros}, "dynamo": True, "verbose": False}
            program: Any = torch.onnx.export(called, (), **options)
        graph = program.model_proto.graph
        operations = {node.op_type for node in graph.node}
        random = "Random", "Bernoulli", "Multinomial", "Dropout"
        draws = [x for x in operations if x.startswith(random)]
        if draws:
            raise of_policy(f"it draws random numbers ({', '.join(draws)}), which cannot be seeded")
        pairs = zip(graph.input, given.values(), strict=True)
        inputs = {each.name: x.unwrap_spox() for each, x in pairs}
        results = spox.inline(program.model_proto)(**inputs)
        return layout.unflatten([ndx.asarray(results[each.name]) for each in graph.output])

    def _marks(self) -> list[tuple[Any, ...]]:
        """Return what tells whether a buffer or an attribute has changed, after its name."""
        found = [(name, x, x._version) for name, x in self._state.items()]
        for name, each in self._module.named_modules():
            for key, x in vars(each).items():
                parts = x.values() if isinstance(x, dict) else x
                known = isinstance(x, (dict, list, deque))
                found.append((f"{name}.{key}".strip("."), x, getattr(x, "_version", 0), *(parts if known else ())))
        return found


def _predicting(policy: Any, model: Any) -> Any:
    """Return a module that does what `predict` of Stable-Baselines3 does, with the statistics of a `VecNormalize`."""
    import torch

    normalizer = getattr(model, "get_vec_normalize_env", lambda: None)()
    statistics = normalizer.obs_rms if normalizer is not None and normalizer.norm_obs else None
    space = policy.action_space

    def normalized(x: Any, moments: Any) -> Any:
        mean, var = map(torch.as_tensor, (moments.mean, moments.var))
        x = (x - mean) / (var + normalizer.epsilon).sqrt()
        return x.clamp(-normalizer.clip_obs, normalizer.clip_obs).float()

    class Predicting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = policy

        def forward(self, observation: Any) -> Any:
            if isinstance(statistics, dict):
                own = {key: normalized(observation[key], x) for key, x in statistics.items()}
                observation = {**observation, **own}
            elif statistics is not None:
                observation = normalized(observation, statistics)
            action = policy._predict(observation, deterministic=True).reshape(-1, *space.shape)
            if not isinstance(space, spaces.Box):
                return action.to(getattr(torch, space.dtype.name))
            if policy.squash_output:
                low, high = map(torch.as_tensor, (space.low, space.high))
                action = low + 0.5 * (action + 1) * (high - low)
            return action

    return Predicting()


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
