"""The inputs of a compiled rollout: values, which may change in each call, and static ones, for which it compiles."""

from __future__ import annotations

import functools
import types
import warnings
from typing import Any

import jax
import numpy as np

from arrayferry.adapting import Cache, Same, difference
from arrayferry_gym._keys.identity import MODULE, Key, code_identity, identity, is_array
from arrayferry_gym.functional._contract.params import VALUE, Frame


class _Bound:
    """A function and its first arguments: a bound method of a pytree, or a `functools.partial`.

    Its arrays are values, everything else in it is static.

    Args:
        function: the function.
        values: the arrays.
        frame: builds positional and keyword arguments from them.
    """

    def __init__(self, function: Any, values: Any, frame: Frame) -> None:
        self._function = function
        self._values = values
        self._frame = frame

    def __call__(self, *args: Any, **options: Any) -> Any:
        first, named = self._frame.join(self._values)
        return self._function(*first, *args, **{**named, **options})

    def flatten(self) -> tuple[Any, Any]:
        """Return its parts, for JAX."""
        return (self._function, self._values), self._frame


jax.tree_util.register_pytree_node(
    _Bound, _Bound.flatten, lambda frame, parts: _Bound(parts[0], parts[1], frame)
)


def _opened(function: Any) -> Any:
    """Return a function as a pytree if it holds arrays that are values."""
    if type(function) is types.MethodType and _is_pytree(function.__self__):
        return _bound(function.__func__, (function.__self__,), {})
    if type(function) is functools.partial:
        return _bound(_opened(function.func), function.args, function.keywords)
    return function


def _is_pytree(value: Any) -> bool:
    return not jax.tree_util.all_leaves([value])


def _bound(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> _Bound:
    leaves, structure = jax.tree.flatten((args, options))
    values = [leaf for leaf in leaves if is_array(leaf)]
    static = tuple(VALUE if is_array(leaf) else leaf for leaf in leaves)
    keys = tuple(map(_key, static))
    frame = Frame(static, _structure(structure), structure.unflatten, keys)
    return _Bound(function, values, frame)


def _structure(tree: Any) -> Key:
    """Return the key of the structure of a pytree: the types and contents of what is static in it."""

    def key(tree: Any) -> Any:
        node = tree.node_data()
        own = None if node is None else (node[0], _static(node[1]))
        return own, tuple(map(key, tree.children()))

    return Key(key(tree))


def _static(data: Any) -> Any:
    """Return the key of the static data of a node of a pytree."""
    if isinstance(data, Frame):
        return data.key
    return tuple(map(_static, data)) if type(data) is tuple else _key(data)


def partition(env: Any, policy: Any, policy_params: Any) -> tuple[list[Any], Frame]:
    """Partition the arguments of a rollout into values and static parts.

    Returns:
        The arrays and floats among them, and the rest.

    Raises:
        arrayferry.OptionError: a function holds arrays, and compiled code would not see them change.
    """
    tree = (env, _opened(policy), policy_params)
    leaves, structure = jax.tree.flatten(tree)
    values, static, keys = [], [], []
    for leaf in leaves:
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic, float, complex)):
            values.append(leaf)
            leaf = VALUE
        static.append(leaf)
        keys.append(identity(leaf) if leaf is env else _key(leaf))
    return values, Frame(tuple(static), _structure(structure), structure.unflatten, tuple(keys))


def _key(leaf: Any) -> Any:
    """Return the key of a leaf. A function that holds arrays is refused."""
    if leaf is VALUE:
        return VALUE
    if not callable(leaf) or isinstance(leaf, type) or jax.config.jax_disable_jit:
        return identity(leaf)
    return code_identity(
        leaf,
        getattr(leaf, "__qualname__", None) or type(leaf).__qualname__,
        "Pass arrays in policy_params. Or make their object a pytree of JAX, such as an Equinox module, "
        "or the function a jax.tree_util.Partial: then they are values. For a policy of another library, pass policy_xp= "
        "to evaluate.",
    )


_CACHE_SIZE = 256
"""The number of policies, and of static parts of each, in the cache."""

_COMPILED: Cache[Any, _Log] = Cache(_CACHE_SIZE)
"""The static parts for which each policy was compiled."""


class _Log:
    """The static parts for which a policy was compiled.

    Attributes:
        seen: the hashes of all static parts so far.
        last: the keys of the last one.
        changes: how often each leaf has changed.
    """

    def __init__(self) -> None:
        self.seen: Cache[int, None] = Cache(_CACHE_SIZE)
        self.last: tuple[Any, ...] | None = None
        self.changes: dict[int, int] = {}


def noted(what: str, tree: tuple[Any, Any, Any], frame: Frame, rest: Any) -> None:
    """Warn if a static leaf is the reason why a rollout is compiled for the third time.

    Args:
        what: what is compiled, "rollout" or "episode".
        tree: the environment, the policy, and its parameters.
        frame: what is static in them.
        rest: what else it is compiled for.
    """
    env, policy, _ = tree
    keys = frame.key.value[1]
    group = what, type(env), _code(policy), len(keys), rest
    log = _COMPILED.get(group)
    if log is None:
        log = _COMPILED[group] = _Log()
    mark = hash(frame.key)
    if mark in log.seen:
        return
    log.seen[mark] = None
    last, log.last = log.last, keys
    for index, (old, new) in enumerate(zip(last or keys, keys, strict=True)):
        if old == new or (index == 0 and not _look_equal(old, new)) or _is_traced(new):
            continue
        log.changes[index] = log.changes.get(index, 0) + 1
        if log.changes[index] == 2:
            place = _place(tree, index) + difference(old, new)
            why = (
                f"{place} was another one each time. It is static: only arrays and floats may change without a new "
                "compilation. Pass it as an array, for example by jax.numpy.asarray, leave it out, or pass the same "
                "object each time"
            )
            if place.endswith(MODULE):
                why = (
                    f"the module that defines {place.removesuffix(MODULE)} was run again each time, so the function "
                    "was another one. Define it in a module that is imported once, or pass the same function each time"
                )
            warnings.warn(f"{what} is compiled for the third time, because {why}", stacklevel=4)


def _code(policy: Any) -> Any:
    """Return the code of a policy, or its class."""
    while isinstance(policy, functools.partial):
        policy = policy.func
    return getattr(policy, "__code__", type(policy))


def _is_traced(key: Any) -> bool:
    """Tell whether a key is of a traced value, which means that the code is part of another function."""
    if isinstance(key, (tuple, frozenset)):
        return any(map(_is_traced, key))
    return isinstance(key, Same) and isinstance(key.value, jax.core.Tracer)


def _look_equal(old: Any, new: Any) -> bool:
    """Tell whether two keys differ only in the identity of objects."""
    if isinstance(old, Same) and isinstance(new, Same):
        return type(old.value) is type(new.value)
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return all(map(_look_equal, old, new))
    return bool(old == new)


def _place(tree: Any, index: int) -> str:
    """Return the place of a leaf as a Python expression."""
    env, policy, params = tree
    paths, _ = jax.tree_util.tree_flatten_with_path((env, _opened(policy), params))
    first, *others = paths[index][0]
    name = ("env", "policy", "policy_params")[first.idx]
    return name + ("" if name == "policy" else jax.tree_util.keystr(tuple(others)))
