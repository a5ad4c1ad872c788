"""`JaxEnv`: an environment of another library, written in JAX for one environment at a time."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import sys
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry.typing import AnyTree, Namespace
from arrayferry_envs._contract.errors import EnvResultError
from arrayferry_envs._contract.functional_env import FunctionalEnv
from arrayferry_envs._contract.params import field_names
from arrayferry_gym.extending import Key, leaves, parts_of, space_of, split


class _Structure(Key):
    """The tree structure of a state, and the random number generators of its typed keys."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Structure, (self.value,)

    def __repr__(self) -> str:
        return repr(self.value[0])


class JaxState(NamedTuple):
    """The states of environments of another library.

    Attributes:
        leaves: the arrays (n, ...). Random keys are stored as their numbers (`jax.random.key_data`).
        structure: the tree structure, and the generators of the random keys.
    """

    leaves: tuple[Any, ...]
    structure: _Structure

    @classmethod
    def of(cls, tree: AnyTree) -> JaxState:
        """Return the arrays and the structure of a tree as a `JaxState`."""
        leaves, structure = jax.tree.flatten(tree)
        generators = tuple(
            jax.random.key_impl(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None
            for leaf in leaves
        )
        pairs = zip(leaves, generators, strict=True)
        raw_leaves = tuple(x if impl is None else jax.random.key_data(x) for x, impl in pairs)
        return cls(raw_leaves, _Structure((structure, generators)))

    @property
    def tree(self) -> Any:
        """The states in the library's structure, with arrays (n, ...)."""
        structure, generators = self.structure.value
        pairs = zip(self.leaves, generators, strict=True)
        return structure.unflatten(
            [x if impl is None else jax.random.wrap_key_data(x, impl=impl) for x, impl in pairs]
        )


def _parts_of(value: AnyTree) -> Hashable | None:
    """Return the parts that represent a value in comparisons: `parts_of`, extended to JAX arrays and plain objects."""
    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        raw_numbers = np.asarray(jax.random.key_data(value) if is_key else value)
        return str(value.dtype), value.weak_type, value.sharding, raw_numbers
    parts = parts_of(value)
    cls: Any = type(value)
    if parts is None and cls.__eq__ is object.__eq__:
        try:
            pickled: Any = object.__reduce_ex__(value, 2)
        except TypeError:  # values such as functions have no state to copy
            return None
        if pickled[:2] == (getattr(copyreg, "__newobj__"), (cls,)):  # noqa: B009
            # an object with __deepcopy__ may copy attributes that it does not pickle, so all
            # attributes are compared
            return pickled[2], object.__getstate__(value) if hasattr(cls, "__deepcopy__") else None
    return parts


@dataclasses.dataclass(init=False, eq=False, repr=False)
class JaxEnv(FunctionalEnv):
    """An environment of another library, written in JAX for one environment at a time. `from_env` makes it.

    It contains a copy of the environment, so that later changes cannot affect compiled code. Two `JaxEnv` are equal if
    the contents of their environments are equal. A state contains the library's states, trees of any structure that
    `begin` and `advance` return.

    Args:
        env: the environment of the other library.
        params: the parameters of the environment, or None for no parameters.
    """

    library: str | None = dataclasses.field(default="jax", init=False, compare=False)
    _immutable_parts_of = staticmethod(_parts_of)
    env: Any
    """A copy of the environment. Later changes to the copy do not affect compiled code."""
    default_params: Any
    # spaces are not compared, since they follow from the fields above, and printing changes a Box
    observation_space: Any = dataclasses.field(init=False, compare=False)
    action_space: Any = dataclasses.field(init=False, compare=False)
    _dtypes: tuple[Any, ...] = ()  # the dtypes of the arrays in a state
    # whether the environment needs discrete actions in int64, as in Gymnasium
    _takes_int64: bool = False

    def __init__(self, env: Any, params: AnyTree = None) -> None:
        self.env, self.default_params = _copied(env, params)
        example = jax.eval_shape(lambda: self.begin(jax.random.key(0), self.default_params))
        obs_form = jax.eval_shape(lambda state: self._observed(state, self.default_params), example)
        self.observation_space = self._space(self.observations(obs_form), "observations")
        self.action_space = self._space(self.actions(example), "actions")
        self._check_observation(obs_form)
        try:
            next_state, reward, *flags = self._after(example)
        except TypeError:  # in 64-bit JAX, a few libraries fail without int64 actions
            self._takes_int64 = True
            next_state, reward, *flags = self._after(example)
        self._check_order(reward, *flags)
        self.reward_shape: tuple[int, ...] = tuple(reward.shape)
        self._dtypes = _lasting_dtypes(example, next_state)
        self._shared = self.shared(example)

    # the methods that adapters of libraries implement, for one environment

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the library's state of one environment at the start of an episode."""
        raise self._missing("begin(self, key, params)")

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Return four results of a step: the library's next state, the reward, terminated and truncated."""
        raise self._missing("advance(self, key, kept, action, params)")

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation of the library's state `kept`, in containers of any type."""
        raise self._missing("observation_of(self, kept, params)")

    def actions(self, example: AnyTree) -> Any:
        """Return the space of actions, given the shapes and dtypes of the library's state."""
        raise self._missing("actions(self, example)")

    def observations(self, example: AnyTree) -> Any:
        """Return the space of observations, given the shapes and dtypes of an observation."""
        return space_of(example)

    def shared(self, example: AnyTree) -> frozenset[int]:
        """Return the indices of the arrays in the library's state that all environments of a batch share."""
        return frozenset()

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the infos of the library's state `kept`."""
        return {}

    def image_of(self, kept: Any) -> Any:
        """Return an image of the library's state `kept`, of shape (height, width, 3 or 4) and dtype uint8."""
        raise self._missing("image_of(self, kept)")

    # results are checked when the environment is made, since later results are batches

    def _missing(self, definition: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} needs the method {definition}")

    def _wrong(self, method: str, reason: str, remedy: str) -> EnvResultError:
        return EnvResultError(f"{type(self).__name__}.{method} returned {reason}", remedy=remedy)

    def _space(self, space: Any, method: str) -> Any:
        if isinstance(space, spaces.Space):
            return space
        raise self._wrong(method, f"{space!r:.80}, not a space", "Return one of gymnasium.spaces.")

    def _check_observation(self, observed: Any) -> None:
        """Check that the structure and the shapes of an observation are those of the space."""

        def mismatch(part: Any, path: str, wanted: str) -> EnvResultError:
            found = f"a {type(part).__name__}"
            if hasattr(part, "shape"):
                found = f"shape {tuple(part.shape)}"
            return self._wrong(
                "observation_of", f"{found} for observation{path}, but its space requires {wanted}",
                "Return one observation, in the structure and shapes of the space that observations() returns.",
            )  # fmt: skip

        space = self.observation_space
        for part, (leaf, path) in zip(split(space, observed, mismatch), leaves(space), strict=True):
            if hasattr(part, "shape") and tuple(part.shape) != (leaf.shape or ()):
                raise mismatch(part, path, f"shape {leaf.shape}")

    def _check_order(self, reward: Any, *flags: Any) -> None:
        """Check that the results of `advance` are in the right order."""
        remedy = "Return, in this order: the library's state, the reward, terminated and truncated."
        for name, flag in zip(("terminated", "truncated"), flags, strict=True):
            if flag.shape:
                raise self._wrong("advance", f"{name} of shape {flag.shape}, not one bool", remedy)
            if reward.dtype == bool and jnp.issubdtype(flag.dtype, jnp.floating):
                reason = f"a reward of dtype bool, but {flag.dtype} for {name}"
                raise self._wrong("advance", reason, remedy)

    def _after(self, first: Any) -> Any:
        """Return the shapes and dtypes of the results of a step."""
        action = jax.tree.map(jnp.asarray, self.action_space.sample())
        args = action, self.default_params
        return jax.eval_shape(lambda state: self._advanced(jax.random.key(0), state, *args), first)

    def _advanced(self, key: Any, state: Any, action: AnyTree, params: AnyTree) -> Any:
        """Take a step of one environment.

        Raises:
            EnvResultError: `advance` did not return four results.
        """
        if not self._takes_int64 and not isinstance(self.action_space, spaces.Box):
            # discrete actions of Gymnasium are int64, but most libraries need int32
            action = jax.tree.map(lambda x: x.astype("i4") if x.dtype == "i8" else x, action)
        results = self.advance(key, state, action, params)
        if not isinstance(results, tuple) or len(results) != 4:
            count = len(results) if isinstance(results, tuple) else 1
            raise EnvResultError(
                f"{type(self).__name__}.advance returned {count} results",
                remedy="Return four: the library's state, the reward, terminated and truncated.",
            )
        return results

    def _kept(self, tree: AnyTree) -> JaxState:
        """Return states as a `JaxState`, in dtypes that do not change between steps."""
        state = JaxState.of(tree)
        if len(self._dtypes) != len(state.leaves):
            return state
        triples = zip(state.leaves, state.structure.value[1], self._dtypes, strict=True)
        return state._replace(
            leaves=tuple(x.astype(dtype) if impl is None else x for x, impl, dtype in triples)
        )

    # the methods of a `FunctionalEnv`

    def _mapped(self, function: Any, params: AnyTree, *arguments: Any) -> Any:
        """Map a function of one environment over all environments. The last argument it receives is the parameters."""
        n = jax.tree.leaves(arguments)[0].shape[0]
        leaves, layout = af.flatten(params, everything=True)
        defaults = af.flatten(self.default_params, everything=True)[0]
        pairs = zip(leaves, defaults, strict=True)
        batched = [hasattr(x, "shape") and x.shape == (n, *np.shape(old)) for x, old in pairs]
        axes = [0 if has_rows else None for has_rows in batched]

        def call_one(leaves: list[Any], *arguments: Any) -> Any:
            return function(*arguments, layout.unflatten(leaves) if leaves else params)

        return jax.vmap(call_one, (axes, *[0] * len(arguments)))(leaves, *arguments)

    def reset(self, xp: Namespace, rng: Any, n: int, params: AnyTree) -> JaxState:
        """Begin episodes."""
        keys = jax.random.split(rng.key(), n)
        return self._kept(self._mapped(self.begin, params, keys))

    def step(
        self, xp: Namespace, rng: Any, state: JaxState, action: AnyTree, params: AnyTree
    ) -> tuple[JaxState, Any, Any, Any]:
        """Take a step."""
        keys = jax.random.split(rng.key(), state.leaves[0].shape[0])
        next_state, reward, terminated, truncated = self._mapped(
            self._advanced, params, keys, state.tree, action
        )
        if jnp.issubdtype(reward.dtype, jnp.integer):
            # without this cast, a warning would ask the environment's author for float rewards
            reward = reward.astype(jnp.float32)
        return self._kept(next_state), reward, terminated.astype(bool), truncated.astype(bool)

    def observe(self, xp: Namespace, state: JaxState, params: AnyTree) -> Any:
        """Return the observations."""
        return self._mapped(self._observed, params, state.tree)

    def _observed(self, state: Any, params: AnyTree) -> Any:
        return as_builtin(self.observation_of(state, params))

    def info(self, xp: Namespace, state: JaxState, params: AnyTree) -> dict[str, Any]:
        """Return the infos."""
        return self._mapped(self._informed, params, state.tree)  # type: ignore[no-any-return]

    def _informed(self, kept: Any, params: AnyTree) -> Any:
        info = as_builtin(self.info_of(kept, params))
        if not isinstance(info, dict):
            raise self._wrong("info_of", f"{type(info).__name__}, not a dict", "Return a dict.")
        for path, value in jax.tree_util.tree_flatten_with_path(info)[0]:
            if not hasattr(value, "dtype") and not isinstance(value, (bool, int, float)):
                key_text = jax.tree_util.keystr(path)
                raise self._wrong(
                    "info_of", f"{value!r:.80} for {key_text}", "Return numbers and arrays."
                )
        return info

    def render(self, state: JaxState, index: int) -> Any:
        """Draw environment `index` with the code of the library that it comes from."""
        indexed = enumerate(state.leaves)
        leaves = tuple(jnp.asarray(x if i in self._shared else x[index]) for i, x in indexed)
        return np.asarray(self.image_of(state._replace(leaves=leaves).tree))[..., :3]

    def __repr__(self) -> str:
        name = getattr(self.env, "name", None)
        return f"<from_env({name if isinstance(name, str) else type(self.env).__name__})>"


def as_builtin(value: AnyTree) -> Any:
    """Convert the containers in observations or infos to dicts and tuples."""
    if isinstance(value, Mapping):
        return {str(key): as_builtin(part) for key, part in value.items()}
    if hasattr(value, "_fields") or dataclasses.is_dataclass(value):
        return {name: as_builtin(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, (tuple, list)):
        return tuple(map(as_builtin, value))
    return value


def _lasting_dtypes(first: Any, after: Any) -> tuple[Any, ...]:
    """Return the dtypes of a state's arrays that can store the values both before and after a step."""
    dtypes = [[x.dtype for x in jax.tree.leaves(state)] for state in (first, after)]
    # if the states have different structures, a later check raises an error that names the array
    if len(dtypes[0]) != len(dtypes[1]):
        return ()
    pairs = zip(*dtypes, strict=True)
    return tuple(old if old == new else jnp.promote_types(old, new) for old, new in pairs)


def _copied(env: Any, params: AnyTree) -> tuple[Any, Any]:
    """Copy an environment and its parameters, so that later changes do not affect compiled code.

    Raises:
        arrayferry.OptionError: the environment cannot be copied.
    """
    try:
        # modules are not copied, since deepcopy fails for them
        modules = {id(module): module for module in sys.modules.values()}
        return copy.deepcopy((env, params), modules)
    except Exception as error:  # third-party code may raise any error
        raise af.OptionError(
            f"{type(env).__module__}.{type(env).__qualname__} cannot be copied ({type(error).__name__}: {error!s:.200})",
            remedy="Remove attributes that cannot be copied, such as open files.",
        ) from error
