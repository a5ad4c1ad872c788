"""Partitions the inputs of compiled rollouts into values and a static part, whose changes compile new code."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Hashable, Iterator
from types import FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

import arrayferry as af
from arrayferry._utilities.caller import caller_level
from arrayferry.extending import IdentityKey, exact_key
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.params import DYNAMIC, StaticPart
from arrayferry_envs._engine.tracing import has_tracers, trace_here
from arrayferry_gym.extending import Immutable, Key

_PASS = (
    "Pass arrays in policy_params. Or make the object a JAX pytree, such as an Equinox module, or the function a "
    "jax.tree_util.Partial: then its arrays are values. For a policy of another library, call evaluate(..., policy_xp=...)."
)
_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (*_ARRAYS, float, complex)
_PLAIN = (bool, int, float, complex, str, bytes)


def _function_and_bound(policy: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function that a policy calls, and the positional and keyword arguments that are bound to it.

    A partial binds its arguments. A method of a pytree binds `self`.
    """
    if isinstance(policy, MethodType) and not jax.tree_util.all_leaves([policy.__self__]):
        return policy.__func__, (policy.__self__,), {}
    if isinstance(policy, functools.partial):  # jax.tree_util.Partial is a subclass
        function, args, options = _function_and_bound(policy.func)
        return function, (*args, *policy.args), {**options, **policy.keywords}
    return policy, (), {}


def partition(env: Any, policy: Any, policy_params: AnyTree) -> tuple[list[Any], StaticPart]:
    """Partition the arguments of a rollout into values and a static part.

    Returns:
        (values, static part). The values are all arrays, and the floats and complex numbers in `policy_params`. The
        static part has the other leaves and the structure. It rebuilds the policy as a `functools.partial`.

    Raises:
        arrayferry.OptionError: a leaf of the static part cannot be hashed, or an array has no equivalent in JAX.
    """
    arguments = env, _function_and_bound(policy), policy_params
    leaves, structure = jax.tree.flatten(arguments)
    num_object_leaves = len(leaves) - structure.children()[2].num_leaves
    static_leaves = [DYNAMIC if isinstance(x, _ARRAYS) else x for x in leaves[:num_object_leaves]]
    static_leaves += [DYNAMIC if isinstance(x, _NUMBERS) else x for x in leaves[num_object_leaves:]]
    keys: list[Any] = []
    for index, leaf in enumerate(static_leaves):
        try:
            keys.append(DYNAMIC if leaf is DYNAMIC else _key_of(leaf))
        except TypeError as error:
            raise af.OptionError(
                f"{_place(arguments, index)} is a {type(leaf).__module__}.{type(leaf).__qualname__}, which is neither an "
                "array of JAX nor hashable",
                remedy='Convert it by arrayferry.convert(x, "jax"), or pass a hashable object. '
                "For a policy of another library, call evaluate(..., policy_xp=...).",
            ) from error
    pairs = enumerate(zip(leaves, static_leaves, strict=True))
    values = [_value(arguments, index, x) for index, (x, leaf) in pairs if leaf is DYNAMIC]
    build = functools.partial(_built, structure)
    return values, StaticPart(tuple(static_leaves), structure, build, Key((structure, tuple(keys))))


def _value(tree: AnyTree, index: int, x: AnyArray) -> Any:
    """Convert a NumPy array to JAX, and check that its numbers fit the dtype in JAX. Return other values unchanged.

    Raises:
        arrayferry.OptionError: JAX has no such dtype, or a number does not fit.
    """
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    reason: Any = "which JAX does not have"
    try:
        converted = af.convert(x, "jax", scalars="convert")
        if isinstance(converted, jax.Array):
            return converted
    except af.ArrayFerryError as error:
        reason = f"which cannot be converted: {error}"
    raise af.OptionError(
        f"{_place(tree, index)} is a {type(x).__name__} of dtype {x.dtype}, {reason}",
        remedy="Leave it out, or convert it to an array with a dtype that JAX has.",
    )


def _built(structure: Any, leaves: list[Any]) -> tuple[Any, Any, Any]:
    env, (function, args, options), policy_params = structure.unflatten(leaves)
    return env, functools.partial(function, *args, **options), policy_params


def _key_of(leaf: AnyTree) -> Hashable:
    """Return a hashable key of a static leaf. Code is compiled again if a key differs.

    Most leaves are compared by their type and `==`, as in JAX. The attributes of an object that equals only itself may
    change. So its key includes the attributes that are NumPy arrays, by identity, or that satisfy `_is_plain`.

    Raises:
        TypeError: the leaf cannot be hashed, or is an array of another library.
    """
    cls: Any = type(leaf)
    if isinstance(leaf, Immutable):
        return leaf._immutable_key()
    if cls in _PLAIN:
        return exact_key(leaf)
    if cls is MethodType:
        return IdentityKey(leaf.__func__), _by_identity(leaf.__self__)
    if cls.__eq__ is object.__eq__:
        return _by_identity(leaf)
    if af.registry.kind(leaf).category in ("array", "objects"):
        raise TypeError
    hash(leaf)
    return cls, leaf


def _by_identity(value: AnyTree) -> Hashable:
    identity_key = IdentityKey(value) if type(value).__weakrefoffset__ else exact_key(value)
    attributes = getattr(value, "__dict__", {}).items()
    plain_attributes = [(name, exact_key(x)) for name, x in attributes if _is_plain(x)]
    return (
        identity_key,
        *plain_attributes,
        *((name, IdentityKey(x)) for name, x in attributes if type(x) is np.ndarray),
    )


def _is_plain(value: AnyTree) -> bool:
    """Return whether a value is None, a number, text or bytes, or a container of at most 100 such values."""
    if type(value) is dict:
        value = (*value.items(),)
    if type(value) in (tuple, list, set, frozenset):
        return len(value) <= 100 and all(map(_is_plain, value))
    return value is None or type(value) in _PLAIN


def _place(tree: AnyTree, index: int) -> str:
    """Return a Python expression for the leaf with this index, such as "policy_params['weight']"."""
    first_key, *other_keys = jax.tree_util.tree_flatten_with_path(tree)[0][index][0]
    name = ("env", "policy", "policy_params")[first_key.idx]
    return name + ("" if name == "policy" else jax.tree_util.keystr(tuple(other_keys)))


def check_constants(policy: functools.partial[Any], act: Any, *args: Any) -> None:
    """Refuse a policy that contains constant arrays, since compiled code would not see their changes.

    Warn of constant arrays that the policy uses without containing them, such as arrays in global variables.

    Args:
        policy: the policy, with tracers in place of the arrays that are values.
        act: a jitted function that calls the policy with its parameters.
        *args: the arguments of `act`.

    Raises:
        arrayferry.OptionError: the policy is a method, an object or a closure that contains arrays.
    """
    constants = _constants(jax.make_jaxpr(act)(*args))
    by_id = {id(x): x for x in constants if isinstance(x, jax.Array) and not has_tracers(x)}
    if not by_id:
        return
    array_texts = ", ".join(f"{x.dtype}{list(x.shape)}" for x in by_id.values())
    namespaces = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    are_global = by_id.keys() <= {id(x) for namespace in namespaces for x in [*namespace.values()]}
    for leaf in jax.tree.leaves((policy.func, policy.args, policy.keywords)):
        function = inspect.unwrap(leaf) if callable(leaf) else None
        is_plain = type(function) is FunctionType and (are_global or not _is_closure(function))
        if function is None or is_plain:
            continue
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise af.OptionError(
            f"{name} contains an array, {array_texts}, but compiled code would not see changes of that array",
            remedy=_PASS,
        )
    warnings.warn(
        f"the policy uses arrays that are not arguments, such as arrays in global variables: {array_texts}. Compiled code "
        "would not see them change. Pass them in policy_params",
        stacklevel=caller_level(),
    )


def _is_closure(function: Any) -> bool:
    return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__)


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Yield the constants in a jaxpr and in the jaxprs nested in it."""
    if isinstance(jaxpr, ClosedJaxpr):
        yield from jaxpr.consts
    for equation in jaxpr.eqns:
        yield from (x.val for x in equation.invars if isinstance(x, Literal))
        for parameter in jax.tree.leaves(equation.params):
            if isinstance(parameter, (ClosedJaxpr, Jaxpr)):
                yield from _constants(parameter)


_OUTSIDE = trace_here()


def in_trace() -> bool:
    """Return whether JAX is tracing the calling code."""
    return bool(trace_here() != _OUTSIDE)
