"""Resets environments in code that JAX compiles."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.checked import CheckedEnv, select_leaves
from arrayferry_gym import make_rng
from arrayferry_gym.extending import held_dtype, to_shape
from arrayferry_gym.wrappers.kernels import Step

from .engine import Engine

FEWEST = 64
"""The smallest number of environments for which it saves time to draw random numbers for only some of them."""


def random_of(key: Any) -> Any:
    return make_rng("jax", key)


def without_weak_type(x: AnyArray) -> Any:
    """Return an array without a weak type, so that code is not compiled again for weak types."""
    return jax.lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x


def shaped(engine: Engine, states: AnyTree, state: AnyTree, params: AnyTree) -> Any:
    """Return initial states of kernels in the shapes that they have after a step, which depend on `reward_shape`.

    Args:
        engine: the engine of the environments and the kernels.
        states: the initial states of the kernels.
        state: the states of the environments.
        params: the parameters.
    """
    env, chain = engine.env, engine.chain
    if not any("reward" in kernel.parts for kernel in chain.kernels):
        return states
    functional = env.functional
    dtype = held_dtype(functional.reward_dtype or "float32", env.backend)
    rewards, flags = jnp.zeros((env.n, *functional.reward_shape), dtype), jnp.zeros(env.n, bool)

    def states_after_step() -> Any:
        observation, info = env.observe(state, params), env.inform(state, params)
        step = Step(observation, rewards, flags, flags, info)
        return chain.take(jnp, states, states, step, None, observation, True)[0]

    def fit_shape(x: AnyArray, y: AnyArray) -> Any:
        return to_shape(jnp, x, y.shape) if hasattr(x, "shape") else x

    return jax.tree.map(fit_shape, states, jax.eval_shape(states_after_step))


class AutoReset:
    """Resets the environments where a mask is true.

    Drawing random numbers takes most of the time of a reset. If no environment is reset, no numbers are drawn. In a
    batch of `FEWEST` or more environments with the same parameters, numbers are drawn for only an eighth of the batch
    if at most an eighth is reset. Otherwise, and under `vmap`, numbers are drawn for all environments.

    Args:
        env: the environments to reset.
        key: the JAX key of the resets.
        params: the parameters.
        pinned: which parameters the environment must not draw: see `Params`.
        batched: whether some parameters differ between environments.

    Attributes:
        key: the JAX key of the next resets, which is a new key if numbers were drawn.
    """

    def __init__(
        self, env: CheckedEnv, key: Any, params: AnyTree, pinned: tuple[bool, ...], batched: bool
    ) -> None:
        self._env = env
        self._params = params
        self._pinned = pinned
        self._counts = [env.n // 8, env.n] if env.n >= FEWEST and not batched else [env.n]
        self.key = key

    def __call__(self, mask: AnyArray, state: AnyTree, observation: AnyTree) -> tuple[Any, Any]:
        env = self._env
        if observation is None:
            observation = env.observe(state, self._params)
        leaves_before = tuple(map(without_weak_type, env.leaves(state)))

        def keep_all(key: Any) -> Any:
            return leaves_before, observation, key

        def reset_rows(count: int, key: Any) -> Any:
            """Draw `count` fresh states, and return all states with the fresh ones where the mask is true."""
            rng = random_of(key)
            fresh = env.leaves(env.reset(rng, count, self._params, self._pinned))
            # if count < n, the i-th environment in the mask receives the i-th fresh state
            rows = None if count == env.n else jnp.clip(jnp.cumsum(mask) - 1, 0, count - 1)
            selected = select_leaves(jnp, mask, fresh, leaves_before, env.functional._shared, rows)
            leaves = tuple(map(without_weak_type, selected))
            return leaves, env.observe(env.join(leaves), self._params), rng.key()

        branches = [keep_all, *(functools.partial(reset_rows, count) for count in self._counts)]
        branch: Any = sum((mask.sum() > count).astype(int) for count in (0, *self._counts[:-1]))
        if not isinstance(branch, jax.core.Tracer):
            # outside compiled code, a switch with several branches would be compiled in each call,
            # since the branches are new functions
            branches, branch = [branches[int(branch)]], 0
        leaves, observation, self.key = jax.lax.switch(branch, branches, self.key)
        return env.join(leaves), observation
