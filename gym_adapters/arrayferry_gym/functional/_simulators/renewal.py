"""Resets of some environments in compiled code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import arrayferry as af
from arrayferry_gym._arrays import select_leaves
from arrayferry_gym.functional._contract.checked import CheckedEnv

FEWEST = 64
"""The number of environments from which drawing random numbers for some of them saves time."""


def random_of(key: Any) -> Any:
    return af.registry.backend("jax").random(key)


def without_weak_type(x: Any) -> Any:
    """Return an array without a weak type, so that nothing is compiled for both types."""
    return jax.lax.convert_element_type(x, x.dtype) if getattr(x, "weak_type", False) else x


class Renewal:
    """Resets the environments in a mask.

    Random numbers are most of the work of a reset. None are drawn if no environment is in the mask, and those for
    an eighth of the environments if that is enough. Under `vmap`, all are drawn.

    Args:
        env: the environments.
        key: a key.
        params: the parameters.
        fixed: which of them are not drawn: see `Params`.
        batched: whether some of them differ from environment to environment.

    Attributes:
        key: a new key after each use, the same key if no number was drawn.
    """

    def __init__(
        self, env: CheckedEnv, key: Any, params: Any, fixed: tuple[bool, ...], batched: bool
    ) -> None:
        self._env = env
        self._params = params
        self._fixed = fixed
        self._few = env.n // 8 if env.n >= FEWEST and not batched else 0
        self.key = key

    def __call__(self, mask: Any, state: Any, observation: Any) -> tuple[Any, Any]:
        env = self._env
        if observation is None:
            observation = env.observe(state, self._params)
        before = tuple(map(without_weak_type, env.leaves(state)))

        def keep(key: Any) -> Any:
            return before, observation, key

        def renew_few(key: Any) -> Any:
            rows = jnp.clip(jnp.cumsum(mask) - 1, 0, self._few - 1)  # a fresh state for each
            return self._put(key, self._few, rows, mask, before)

        def renew_any(key: Any) -> Any:
            return self._put(key, env.n, None, mask, before)

        count = mask.sum()
        if self._few:
            chosen = (count > 0).astype(int) + (count > self._few).astype(int)
            result = jax.lax.switch(chosen, [keep, renew_few, renew_any], self.key)
        else:
            result = jax.lax.cond(count > 0, renew_any, keep, self.key)
        leaves, observation, self.key = result
        return env.join(leaves), observation

    def _put(self, key: Any, count: int, rows: Any, mask: Any, before: Any) -> Any:
        """Make fresh states, and put them in place of the states in the mask."""
        env = self._env
        rng = random_of(key)
        fresh = env.leaves(env.reset(rng, count, self._params, self._fixed))
        chosen = select_leaves(jnp, mask, fresh, before, env.dynamics._shared, rows)
        leaves = tuple(map(without_weak_type, chosen))
        return leaves, env.observe(env.join(leaves), self._params), rng.key()
