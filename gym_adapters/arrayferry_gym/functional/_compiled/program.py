"""The inputs of a compiled rollout: values, which may change in each call, and static ones, for which it compiles."""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Hashable, Iterator
from types import FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

import arrayferry as af
from arrayferry.adapting import Cache, Same, exact_key
from arrayferry_gym._keys.keys import Key, parts_of
from arrayferry_gym._options.caller import caller_level
from arrayferry_gym.functional._contract.params import VALUE, Frame

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before JAX 0.10
    from jax.core import get_opaque_trace_state

_PASS = (
    "Pass arrays in policy_params. Or make their object a pytree of JAX, such as an Equinox module, or the function a "
    "jax.tree_util.Partial: then they are values. For a policy of another library, pass policy_xp= to evaluate."
)
_ARRAYS = (jax.Array, np.ndarray, np.generic)
_NUMBERS = (*_ARRAYS, float, complex)
_PLAIN = (bool, int, float, complex, str, bytes)


class _Bound:
    """A function and its first arguments: a bound method of a pytree, or a `functools.partial`. It is a pytree."""

    def __init__(self, function: Any, args: Any, options: Any) -> None:
        self.parts = function, args, options

    def __call__(self, *args: Any, **options: Any) -> Any:
        function, first, named = self.parts
        return function(*first, *args, **{**named, **options})


jax.tree_util.register_pytree_node(
    _Bound, lambda bound: (bound.parts, None), lambda _, parts: _Bound(*parts)
)


def _opened(function: Any) -> Any:
    """Return a function as a pytree if it is a method of one, or a partial."""
    if type(function) is MethodType and not jax.tree_util.all_leaves([function.__self__]):
        return _Bound(function.__func__, (function.__self__,), {})
    if type(function) in (functools.partial, jax.tree_util.Partial):
        return _Bound(_opened(function.func), function.args, function.keywords)
    return function


def partition(env: Any, policy: Any, policy_params: Any) -> tuple[list[Any], Frame]:
    """Partition the arguments of a rollout into values and static parts.

    Returns:
        The arrays among them, and the floats in `policy_params`; and the rest.

    Raises:
        arrayferry.OptionError: a part is neither a number of JAX nor can it be compared and hashed.
    """
    leaves, structure = jax.tree.flatten((env, _opened(policy), policy_params))
    first = len(leaves) - structure.children()[2].num_leaves
    values: list[Any] = []
    static: list[Any] = []
    keys: list[Any] = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, _ARRAYS if index < first else _NUMBERS):
            values.append(leaf)
            static.append(VALUE)
            keys.append(VALUE)
        else:
            if type(leaf) is not FunctionType and leaf is not env:
                _check_static(leaf, index, (env, policy, policy_params))
            static.append(leaf)
            keys.append(exact_key(leaf, _parts_of_static))
    key = Key((_structure_key(structure), tuple(keys)))
    return values, Frame(tuple(static), structure, structure.unflatten, key)


def _structure_key(structure: Any) -> Hashable:
    """Return the key of the structure of a pytree: JAX compares what is static in it whatever its type."""
    node, children = structure.node_data(), structure.children()
    own = None if node is None else (node[0], exact_key(node[1], _parts_of_static))
    return own, *map(_structure_key, children)


def _parts_of_static(value: Any) -> Hashable | None:
    """Compare objects by `==` and hash. Of one that equals only itself, plain attributes count too, which may change."""
    special = parts_of(value)
    cls: Any = type(value)
    if (
        special is not None
        or cls in (FunctionType, MethodType, tuple, frozenset)
        or isinstance(value, type)
    ):
        return special
    if cls.__eq__ is object.__eq__:
        own = getattr(value, "__dict__", None) or {}
        plain = {
            name: Same(part) if isinstance(part, np.ndarray) else part
            for name, part in own.items()
            if type(part) in (*_PLAIN, np.ndarray)
        }
        return (Same(value) if cls.__weakrefoffset__ else id(value), plain)
    return None if cls.__hash__ is None or isinstance(value, _ARRAYS) else value


def _check_static(leaf: Any, index: int, tree: Any) -> None:
    """Refuse a leaf that is neither static nor a number of JAX."""
    array = af.registry.kind(leaf).category in ("array", "objects")
    if not array and type(leaf).__hash__ is not None:
        return
    what = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    raise af.OptionError(
        f"{_place(tree, index)} is a {what}, which is neither an array of JAX nor static",
        remedy='Convert it by arrayferry.convert(x, "jax"), or pass something that can be hashed. '
        "For a policy of another library, pass policy_xp= to evaluate.",
    )


def _place(tree: Any, index: int) -> str:
    """Return the place of a leaf as a Python expression."""
    env, policy, params = tree
    paths, _ = jax.tree_util.tree_flatten_with_path((env, _opened(policy), params))
    first, *others = paths[index][0]
    name = ("env", "policy", "policy_params")[first.idx]
    return name + ("" if name == "policy" else jax.tree_util.keystr(tuple(others)))


def check_constants(policy: Any, act: Any, *args: Any) -> None:
    """Search a traced policy for arrays that it holds, since compiled code would not see them change.

    Args:
        policy: the policy, whose arrays are traced if they are values.
        act: the policy with its parameters, as a function that `jit` has compiled.
        *args: the other arguments of the policy.

    Raises:
        arrayferry.OptionError: it is a method, an object or a closure that holds arrays.
    """
    found = {id(x): x for x in _constants(jax.make_jaxpr(act)(*args))}
    if not found:
        return
    arrays = ", ".join(f"{x.dtype}{list(x.shape)}" for x in found.values())
    for leaf in jax.tree.leaves(policy):
        function = inspect.unwrap(leaf) if callable(leaf) else None
        if function is None or (type(function) is FunctionType and not _is_closure(function)):
            continue
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise af.OptionError(
            f"{name} holds an array, {arrays}, but it is compiled once and would not see the array change",
            remedy=_PASS,
        )
    warnings.warn(
        f"the policy uses arrays that are not among its values, such as global variables: {arrays}. It is compiled "
        "once and would not see them change. Pass them in policy_params",
        stacklevel=caller_level(),
    )


def _is_closure(function: Any) -> bool:
    return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__)


def _constants(jaxpr: Any) -> Iterator[jax.Array]:
    """Yield the arrays of JAX among the constants of a program, and of the programs in it."""
    if isinstance(jaxpr, ClosedJaxpr):
        yield from filter(_is_concrete, jaxpr.consts)
    for equation in jaxpr.eqns:
        yield from (
            x.val for x in equation.invars if isinstance(x, Literal) and _is_concrete(x.val)
        )
        for part in jax.tree.leaves(equation.params):
            if isinstance(part, (ClosedJaxpr, Jaxpr)):
                yield from _constants(part)


def _is_concrete(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


_OUTSIDE = get_opaque_trace_state(convention="nnx")


def in_trace() -> bool:
    """Tell whether JAX traces the code that runs."""
    return bool(get_opaque_trace_state(convention="nnx") != _OUTSIDE)


_COMPILED: weakref.WeakKeyDictionary[Any, Cache[int, list[Any]]] = weakref.WeakKeyDictionary()
"""The static parts for which the policies of each code or class were compiled, by all else that was the same."""


def note_compilation(what: str, tree: tuple[Any, Any, Any], frame: Frame, rest: Any) -> None:
    """Warn if a static part of a policy or its parameters is the reason for a third compilation.

    Args:
        what: what is compiled, "rollout" or "episode".
        tree: the environment, the policy, and its parameters.
        frame: what is static in them.
        rest: what else it is compiled for.
    """
    policy = inspect.unwrap(tree[1])
    while isinstance(policy, functools.partial):
        policy = policy.func
    policy = getattr(policy, "__func__", policy)
    code = getattr(policy, "__code__", type(policy))
    structure, (env, *keys) = frame.key.value
    log = _COMPILED.setdefault(code, Cache(256)).setdefault(hash((what, structure, env, rest)), [])
    if keys in log or len(log) == 3:
        return
    log.append(keys)
    if len(log) == 3:
        index = 1 + next(
            i for i, (old, new) in enumerate(zip(log[1], keys, strict=True)) if old != new
        )
        warnings.warn(
            f"{what} is compiled for the third time, because {_place(tree, index)} was another one each time. It is "
            "static: only arrays, and floats in policy_params, may change without a new compilation. Pass the same "
            "object each time, such as a function that is defined once; or pass what changes in policy_params, as an "
            "array",
            stacklevel=caller_level(),
        )
