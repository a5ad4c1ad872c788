"""Calls policies, with or without a state, in compiled rollouts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import arrayferry as af
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.policies import Policy, checked_results, policy_rows
from arrayferry_envs._engine.autoreset import without_weak_type
from arrayferry_gym.extending import select

PolicyState = Any
"""A pytree of arrays (n, ...), one row for each environment, or None for a policy without a state."""


def first_policy_state(state: PolicyState, num_envs: int) -> PolicyState:
    """Convert the initial state of a policy to JAX arrays. Check that they have one row for each environment.

    Raises:
        arrayferry.OptionError: an array does not have one row for each environment.
        arrayferry.ConversionError: an array has no equivalent in JAX, such as a masked array, or a number does not fit.
    """
    if state is None:
        return None
    state = jax.tree.map(lambda x: jnp.asarray(af.convert(x, "jax")), state)
    policy_rows(state, num_envs)
    return jax.tree.map(without_weak_type, state)


def acted(
    policy: Policy, params: AnyTree, observation: AnyTree, key: Any, state: PolicyState = None
) -> tuple[Any, Any, PolicyState]:
    """Call a policy. Return its action, its extras and its next state (None for a policy without a state).

    Raises:
        arrayferry.OptionError: the policy returned an invalid result.
    """
    optional_state = () if state is None else (state,)
    try:
        result = policy(params, observation, key, *optional_state)
    except Exception as error:
        error.add_note(
            "The policy, which JAX compiles, raised this error. For a policy of another library, call "
            "evaluate(..., policy_xp=...)."
        )
        raise
    result_names = ("action", "extras", "policy_state")[: 2 + len(optional_state)]
    checked_results(result, *result_names)
    for name, part in zip(result_names, result, strict=True):
        for leaf in af.flatten(part)[0]:
            library = af.backend_of(leaf).name
            if library not in ("jax", "numpy"):
                raise af.OptionError(
                    f"the policy returned an array of {library} in its {name}, but a policy that "
                    "JAX compiles must compute in JAX",
                    remedy="Compute in JAX. Or step the environment in the library of the policy: "
                    f"env.make_vec(n, xp={library!r}).",
                )
    action, extras, *next_state = result
    return action, extras, _same(state, *next_state) if next_state else None


def checked_extras(extras: AnyTree) -> Any:
    """Check that the extras of a policy are arrays or numbers, and return them.

    Raises:
        arrayferry.OptionError: a leaf is neither an array nor a number.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(extras):
        number_types = jax.Array, np.ndarray, np.generic, bool, int, float, complex
        if not (isinstance(leaf, number_types) or hasattr(leaf, "__jax_array__")):
            raise af.OptionError(
                f"the policy returned extras{jax.tree_util.keystr(path)} = {leaf!r:.80}, which is neither an array nor a number",
                remedy="Return arrays (num_envs, ...), in any pytree, or None.",
            )
    return extras


def began_anew(mask: AnyArray, first: PolicyState, state: PolicyState) -> PolicyState:
    """Return rows of `first` where `mask` is true, since an episode begins there, and rows of `state` elsewhere."""
    return jax.tree.map(lambda x, y: select(jnp, mask, x, y), first, state)


def _same(before: PolicyState, after: PolicyState) -> PolicyState:
    """Check that `after` has the structure, dtypes and shapes of `before`, and return `after` as JAX arrays."""

    def forms_of(tree: PolicyState) -> list[tuple[str, Any, Any]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return [(jax.tree_util.keystr(at), jnp.result_type(x), jnp.shape(x)) for at, x in leaves]

    for (path, dtype, shape), found in zip(forms_of(before), forms_of(after), strict=False):
        if (path, dtype, shape) != found:
            raise af.OptionError(
                f"the policy got policy_state{path} of dtype {dtype} and shape {shape}, but returned "
                f"policy_state{found[0]} of dtype {found[1]} and shape {found[2]}",
                remedy="Return states of the same structure, dtypes and shapes as policy_state.",
            )
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise af.OptionError(
            f"the policy got the policy_state {jax.tree.structure(before)}, but returned {jax.tree.structure(after)}",
            remedy="Return states of the same structure as policy_state.",
        )
    return jax.tree.map(without_weak_type, jax.tree.map(jnp.asarray, after))
