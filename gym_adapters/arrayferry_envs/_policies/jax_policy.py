"""Policies in JAX that are called from Python."""

from __future__ import annotations

import functools
from typing import Any

import jax

import arrayferry as af
from arrayferry._utilities.options import stream_seed
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._compiled.policies import acted, began_anew, first_policy_state
from arrayferry_envs._compiled.program import check_constants, partition
from arrayferry_gym import make_rng

from .policies import LibraryPolicy


def jax_weights(weights: AnyArray) -> Any:
    """Convert the parameters of a policy, a tree with arrays of any library, to JAX arrays."""
    arrays = af.flatten(weights)[0]
    # JAX arrays are not converted, since `convert` may not know the pytree types in `weights`
    if all(isinstance(x, jax.Array) for x in arrays):
        return weights
    return af.convert(weights, "jax", unsupported="keep", unknown="keep")


class JaxPolicy(LibraryPolicy):
    """A policy that JAX compiles."""

    def _initial(self, state: AnyTree, count: int) -> Any:
        return first_policy_state(super()._initial(state, count), count)

    def load(self, params: AnyTree) -> None:
        self._values, self._frame = partition(None, self._policy, jax_weights(params))

    def begin(self, number: int) -> None:
        self._key = make_rng("jax", stream_seed("policy", *self._seed_prefix, number)).key()

    def __call__(self, observation: AnyTree, began: AnyArray, step: int) -> tuple[Any, Any]:
        observation = self._convert(observation)
        policy_states = began, self._first_state, self._state
        action, extras, self._state = _act(
            self._frame, self._values, observation, self._key, step, policy_states
        )
        return action, extras

    def in_numpy(self, action: AnyTree, extras: AnyTree) -> tuple[Any, Any]:
        return jax.device_get((action, extras))  # type: ignore[no-any-return]


@functools.partial(jax.jit, static_argnums=0)
def _act(
    frame: Any, values: AnyTree, observation: AnyTree, key: Any, step: Any, states: AnyTree
) -> Any:
    _, policy, params = frame.join(values)
    began, first_state, state = states
    if first_state is not None:
        state = began_anew(began, first_state, state)

    def act(observation: AnyTree, key: Any, state: AnyTree) -> Any:
        return acted(policy, params, observation, key, state)

    arguments = observation, jax.random.fold_in(key, step), state
    compiled = jax.jit(act, inline=True)
    if not jax.config.jax_disable_jit:
        check_constants(policy, compiled, *arguments)
    return compiled(*arguments)
