"""Exports environments and policies in JAX: `RecordedEnv` records the methods of an environment in an ONNX graph.

This module imports JAX.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import arrayferry as af
from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree, Namespace
from arrayferry_translate import function_of, translate

from ._contract.actions import clipper
from ._contract.checked import CheckedEnv, select_leaves
from ._contract.policies import checked_results
from ._engine.autoreset import random_of

GENERATOR = "threefry2x32"
"""The random number generator of the keys."""


def _typed(key: Any) -> Any:
    return jax.random.wrap_key_data(key, impl=GENERATOR)


class RecordedEnv:
    """Replaces a `CheckedEnv`. Its methods, which JAX traces and ndonnx records, accept raw keys as random numbers.

    Args:
        inner: the `CheckedEnv`, in JAX.
        backend: the backend of ndonnx.
        xp: the namespace of ndonnx.
    """

    traces = False

    def __init__(self, inner: CheckedEnv, backend: af.Backend, xp: Namespace) -> None:
        self.inner, self.backend, self.xp = inner, backend, xp
        self.n, self.limit, self.name = inner.n, inner.limit, inner.name
        self.has_info, self.masks_actions = inner.has_info, inner.masks_actions
        self.clip = clipper(inner.functional.action_space, backend, None)

    def split(self, key: Any) -> Any:
        """Split a raw key into three: for the next run, for the step, and for resets."""
        split_function = translate(
            lambda x: jax.random.key_data(jax.random.split(_typed(x), 3)), self.backend
        )
        key_data = split_function(key)
        return key_data[0, ...], key_data[1, ...], key_data[2, ...]

    def reset(self, key: Any, n: int, params: AnyTree, pinned: Any = ()) -> Any:
        return self._call(lambda key, params: self.inner.reset(random_of(_typed(key)), n, params, pinned), key, params)  # fmt: skip

    def step(self, key: Any, *arguments: Any) -> Any:
        return self._call(lambda key, *arguments: self.inner.step(random_of(_typed(key)), *arguments), key, *arguments)  # fmt: skip

    def observe(self, *arguments: Any) -> Any:
        return self._call(self.inner.observe, *arguments)

    def inform(self, *arguments: Any) -> Any:
        return self._call(self.inner.inform, *arguments)

    def select(self, mask: AnyArray, new: Any, old: Any) -> Any:
        leaves_of, shared = self.inner.leaves, self.inner.functional._shared
        return self.inner.join(select_leaves(self.xp, mask, leaves_of(new), leaves_of(old), shared))

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Trace a method in JAX, record it in the graph, and return its result as a tree of ndonnx arrays."""
        arrays, layout = af.flatten(arguments)
        spec: Any = None

        def run(arrays: AnyTree) -> Any:
            nonlocal spec
            leaves, spec = af.flatten(method(*layout.unflatten(arrays)))
            return leaves

        return spec.unflatten(leaves) if (leaves := translate(run, self.backend)(arrays)) else spec


def in_jax(policy: Any, params: AnyTree, observation: AnyTree, rng: Any) -> bool:
    """Return whether a policy is in JAX: a JAX module, or a function that needs a JAX key or returns JAX arrays.

    Args:
        policy: the policy, a function or a JAX module.
        params: the parameters of the policy.
        observation: a batch of observations in NumPy.
        rng: random numbers in NumPy.
    """
    if is_jax_module(policy):
        return True
    try:
        arguments = map_arrays(lambda x: np.array(af.convert(x, "numpy")), (params, observation))
        result = policy(*arguments, rng)
    except Exception:  # the policy may raise any error: for example, if it needs a key
        try:
            result = jax.eval_shape(policy, params, observation, jax.random.key(0))
        except Exception:
            return False
    return any(isinstance(x, (jax.Array, jax.ShapeDtypeStruct)) for x in jax.tree.leaves(result))


def is_jax_module(policy: Any) -> bool:
    """Return whether a policy is a module of Flax or Equinox."""
    packages = {cls.__module__.partition(".")[0] for cls in type(policy).__mro__}
    return bool(packages & {"flax", "equinox"})


def by_jax(policy: Any, params: AnyTree, example: AnyTree, in_graph: Any) -> Callable[..., Any]:
    """Return `act(xp, observation, rng) -> action`, as `acting` does, for a policy in JAX.

    Args:
        policy: a function of parameters, observations and a key; a module of Flax for a batch of observations; or a module
            of Equinox for one observation.
        params: the parameters of the policy.
        example: a batch of observations in NumPy.
        in_graph: the `xp` with which `act` adds the policy to the graph. With any other `xp`, `act` uses NumPy.
    """

    def call(observation: AnyTree, key: Any) -> Any:
        if not is_jax_module(policy) or _takes_three(policy):
            result = policy(params, observation, _typed(key))
            return checked_results(result, "action", "extras")[0]
        if hasattr(policy, "apply"):  # the policy is a module of flax.linen
            if params is None:
                raise af.OptionError(
                    f"{type(policy).__name__} needs variables, but policy_params is None",
                    remedy="Pass the result of its init() as policy_params.",
                )
            return policy.apply(params, observation)
        if params is not None:
            raise af.OptionError(
                f"policy_params was passed, but {type(policy).__name__} contains its own parameters",
                remedy="Leave out policy_params.",
            )
        is_equinox = any(cls.__module__.startswith("equinox") for cls in type(policy).__mro__)
        return (jax.vmap(policy) if is_equinox else policy)(observation)

    key, backend = np.zeros(2, np.uint32), af.registry.backend("ndonnx")
    program = translate(call, backend).program(example, key)
    read_variables = {n for equation in program.equations for n in equation.inputs}
    uses_key, compiled = program.inputs - 1 in read_variables, jax.jit(call)

    def act(xp: Namespace, observation: AnyTree, rng: Any) -> Any:
        raw_key = rng.integers((2,), 0, 2**32, "uint32") if uses_key else xp.asarray(key)
        if xp is in_graph:
            return function_of(program, backend)(observation, raw_key)
        return af.convert(compiled(observation, raw_key), "numpy")

    return act


def _takes_three(policy: Any) -> bool:
    try:
        bound = inspect.signature(policy).bind("params", "observation", "key")
    except TypeError:
        return False
    # *args, as in flax.linen.Sequential, counts as one argument
    return len(bound.arguments) == 3
