"""Environments of navix."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium import Space, spaces

from .base import OtherEnv
from .spaces import plain, space_of

TRUNCATION, TERMINATION = 1, 2


class NavixEnv(OtherEnv):
    """An environment of navix. Its limit of steps (`max_steps`), which some rewards use, is its own; it truncates.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        env = self.env
        example = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        # of the dtype's own bounds: those that navix states are too narrow
        self.observation_space = space_of(plain(example.observation))
        self.action_space = _actions(env.action_space)
        self._dtypes = self._lasting_dtypes()

    def begin(self, key: Any, params: Any) -> Any:
        """Return the time step."""
        return self.env.reset(jax.random.key_data(key))

    def advance(self, key: Any, kept: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any]:
        """Take a step, without navix's reset in the next one."""
        after = self.env._step(kept, action)
        return (
            after,
            after.reward,
            after.step_type == TERMINATION,
            after.step_type == TRUNCATION,
        )

    def seen(self, kept: Any, params: Any) -> Any:
        """Return the observation."""
        return plain(kept.observation)

    def told(self, kept: Any, params: Any) -> dict[str, Any]:
        """Return the infos."""
        return {str(name): x for name, x in kept.info.items() if hasattr(x, "dtype")}


def _actions(space: Any) -> Space[Any]:
    if type(space).__name__ == "Discrete" and space.shape == ():
        return spaces.Discrete(int(space.maximum) + 1)
    return space_of(space, np.asarray(space.minimum), np.asarray(space.maximum))
