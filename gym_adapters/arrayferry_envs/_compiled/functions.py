"""Environments as pure functions in JAX, for `jit`, `vmap`, `scan` and `grad`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode

import arrayferry as af
from arrayferry._utilities.options import UNSET, count_of, limit_of
from arrayferry._utilities.text import never_raises
from arrayferry.typing import AnyTree
from arrayferry_envs._around.wrapped import WrappedEnv, check_wrapped
from arrayferry_envs._contract.actions import Actions
from arrayferry_envs._contract.checked import CheckedEnv
from arrayferry_envs._contract.functional_env import FunctionalEnv, checked_env
from arrayferry_envs._contract.params import Params, prepare
from arrayferry_envs._engine.autoreset import AutoReset, random_of, shaped, without_weak_type
from arrayferry_envs._engine.chains import chain_of
from arrayferry_envs._engine.engine import Engine, EnvState, with_added
from arrayferry_envs._engine.random_keys import checked_key
from arrayferry_envs._engine.shardings import batch_sharding, spread
from arrayferry_gym.extending import autoreset_mode_of, held_dtype
from arrayferry_gym.wrappers.kernels import Step


@dataclasses.dataclass(eq=False, repr=False)
class Packed:
    """A pytree for states whose container JAX does not know, such as a plain dataclass.

    Attributes:
        leaves: the arrays in the states.
        layout: the structure of the states.
    """

    leaves: tuple[Any, ...]
    layout: af.TreeSpec

    @property
    def tree(self) -> Any:
        """The states in the container in which the environment returned them."""
        return self.layout.unflatten(self.leaves)

    @never_raises
    def __repr__(self) -> str:
        return f"Packed({self.tree!r})"


jax.tree_util.register_dataclass(Packed, ["leaves"], ["layout"])


def as_pytree(state: AnyTree) -> Any:
    """Return states as a pytree of arrays: a `Packed` if JAX does not know a container in them, or sorts a dict."""
    leaves, layout = af.flatten(state)
    visible = jax.tree.leaves(state)
    if len(visible) == len(leaves) and all(a is b for a, b in zip(visible, leaves, strict=True)):
        tree = jax.tree.map(without_weak_type, state)
        if af.flatten(tree)[1] == layout:  # layouts differ if JAX has sorted a dict
            return tree
    return Packed(tuple(map(without_weak_type, leaves)), layout)


def as_returned(state: AnyTree) -> Any:
    """Unpack a `Packed` if JAX finds the same arrays in its tree. Return other states unchanged."""
    if type(state) is not Packed:
        return state
    jax_ids = set(map(id, jax.tree.leaves(state.tree)))
    return state.tree if jax_ids == set(map(id, state.leaves)) else state


def from_pytree(state: AnyTree) -> Any:
    """Undo `as_pytree`: return states in the container in which the environment returned them."""
    return state.tree if type(state) is Packed else state


class Functions:
    """An environment as pure functions in JAX, for `jit`, `vmap`, `scan` and `grad`.

    Args:
        env: the `FunctionalEnv` that provides the functions.
        autoreset_mode: Gymnasium's mode for resets after an episode. In the default mode, SAME_STEP, the step that ends
            an episode also resets the environment.
        max_episode_steps: the number of steps after which an episode is truncated, or None for no limit. The default is
            the environment's limit.
        sharding: as in `rollout`.

    Examples:
        >>> import jax
        >>> from arrayferry_envs import CartPole, Functions
        >>> functions = Functions(CartPole())
        >>> env_state, observation = functions.reset(jax.random.key(0), 4)
        >>> env_state, outcome = jax.jit(functions.step)(
        ...     jax.random.key(1), env_state, jax.numpy.array([0, 1, 0, 1])
        ... )
        >>> outcome.reward
        Array([1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        env: FunctionalEnv,
        *,
        autoreset_mode: Any = AutoresetMode.SAME_STEP,
        max_episode_steps: Any = UNSET,
        sharding: Any = None,
    ) -> None:
        self.env: FunctionalEnv = checked_env(env)
        self.autoreset_mode: AutoresetMode = autoreset_mode_of(autoreset_mode)
        self.max_episode_steps: int | None = limit_of(max_episode_steps, self.env.max_episode_steps)
        self.sharding: Any = sharding
        self._chain = chain_of(self.env, self.max_episode_steps)

    def _engine(self, n: int, env_state: EnvState | None) -> Engine:
        env = CheckedEnv(self.env.base, af.registry.backend("jax"), n, self.max_episode_steps)
        if env_state is not None:
            env.adopt(from_pytree(env_state.state))
        return Engine(env, self.autoreset_mode, self._chain)

    def _params(self, params: AnyTree, n: int) -> Params:
        if isinstance(params, Params):
            return params
        defaults, draws_params = self.env.default_params, self.env._draws_params
        return prepare(params, defaults, n, af.registry.backend("jax"), None, draws=draws_params)

    def reset(
        self, key: Any, num_envs: int, params: AnyTree = None, *, wrapper_state: AnyTree = None
    ) -> tuple[EnvState, Any]:
        """Begin an episode in each of `num_envs` environments.

        Args:
            key: a JAX key.
            num_envs: the number of environments.
            params: parameters, or a dict of the parameters that differ from the defaults.
            wrapper_state: the initial statistics of wrappers: the field `wrappers` of an `EnvState`, or the result of
                `env.state_dict(env_state)`. None for no statistics.

        Returns:
            The environments, as an `EnvState`, and their observations.
        """
        num_envs = count_of("num_envs", num_envs)
        rng, engine = random_of(checked_key(key)), self._engine(num_envs, None)
        prepared = self._params(params, num_envs)
        state = engine.env.reset(rng, num_envs, prepared.tree, prepared.pinned)
        check_wrapped(self.env, wrapper_state)
        kernel_states = shaped(engine, engine.kernel_states(), state, prepared.tree)
        if isinstance(self.env, WrappedEnv) and wrapper_state is not None:
            kernel_states = self.env.given(jnp, kernel_states, wrapper_state)
        env_state, observation, _ = engine.reset(state, prepared.tree, kernel_states)
        return self._for_caller(env_state, observation, num_envs)  # type: ignore[no-any-return]

    def first_returns(self, n: int, step: Callable[[], Step]) -> Any:
        """Return zeros with the shape and dtype of the sum of an episode's rewards in each environment.

        Args:
            n: the number of environments.
            step: a function that takes a step. If the environment has no `reward_dtype`, JAX traces this function to
                find the dtype of rewards.
        """
        base = self.env.base
        shape, dtype = self._chain.rewards(base.reward_shape, base.reward_dtype)
        if dtype is None:
            reward_dtype = jax.eval_shape(step).reward.dtype
        else:
            reward_dtype = held_dtype(dtype, af.registry.backend("jax"))
        with jax.numpy_dtype_promotion("standard"):
            return jnp.zeros((n, *shape), jnp.promote_types(reward_dtype, jnp.float32))

    def _for_caller(self, env_state: EnvState, result: AnyTree, n: int) -> Any:
        """Return `env_state`, with states as a pytree, and `result`. Spread their arrays as `sharding` says."""
        tree = env_state._replace(state=as_pytree(env_state.state)), result
        if self._chain.kernels:
            tree = jax.tree.map(without_weak_type, tree)
        return spread(tree, n, batch_sharding(self.sharding, n))

    def step(
        self, key: Any, env_state: EnvState, action: AnyTree, params: AnyTree = None
    ) -> tuple[EnvState, Step]:
        """Take a step in all environments. Reset environments whose episode has ended, according to `autoreset_mode`.

        Args:
            key: a JAX key, a different one for each step.
            env_state: the environments, as `reset` or the last step returned them.
            action: the actions of all environments, which are clipped to the action space.
            params: as in `reset`.

        Returns:
            The environments after the step, as an `EnvState`, and a `Step` with their observations, rewards and infos.

        Raises:
            arrayferry.ArrayFerryError: the key or the actions are invalid.
        """
        n = env_state.elapsed.shape[0]
        engine, prepared = self._engine(n, env_state), self._params(params, n)
        env, params_tree = engine.env, prepared.tree
        step_key, reset_key, wrappers_key = jax.random.split(checked_key(key), 3)
        convert_actions = Actions(env.name, self._chain.outside.action, n, env.backend, None)
        env_state = env_state._replace(state=from_pytree(env_state.state))
        autoreset = AutoReset(env, reset_key, params_tree, prepared.pinned, prepared.any_batched)
        next_env_state, outcome, added = engine.step(
            random_of(step_key),
            env_state,
            convert_actions(action),
            params_tree,
            autoreset,
            random_of(wrappers_key),
        )
        return self._for_caller(next_env_state, with_added(outcome, added), n)  # type: ignore[no-any-return]
