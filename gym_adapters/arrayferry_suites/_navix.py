"""Environments of navix."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from arrayferry.typing import AnyTree
from arrayferry_envs import JaxEnv
from arrayferry_gym.extending import space_of

TRUNCATION, TERMINATION = 1, 2


class NavixEnv(JaxEnv):
    """An environment of navix. Its own step limit (`max_steps`) truncates episodes, and affects some rewards.

    Args:
        env: the environment of navix.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    # `observations` is not overridden, since the bounds that navix declares are too narrow

    def actions(self, example: AnyTree) -> Any:
        """Return the declared space."""
        space = self.env.action_space
        if type(space).__name__ == "Discrete" and space.shape == ():
            return spaces.Discrete(int(space.maximum) + 1)
        return space_of(space, np.asarray(space.minimum), np.asarray(space.maximum))

    def begin(self, key: Any, params: AnyTree) -> Any:
        """Return the first time step of an episode."""
        return self.env.reset(jax.random.key_data(key))

    def advance(
        self, key: Any, kept: Any, action: AnyTree, params: AnyTree
    ) -> tuple[Any, Any, Any, Any]:
        """Take a step, without navix's automatic reset."""
        timestep = self.env._step(kept, action)
        step_type = timestep.step_type
        return timestep, timestep.reward, step_type == TERMINATION, step_type == TRUNCATION

    def observation_of(self, kept: Any, params: AnyTree) -> Any:
        """Return the observation."""
        return kept.observation

    def info_of(self, kept: Any, params: AnyTree) -> dict[str, Any]:
        """Return the infos that are arrays."""
        return {str(name): x for name, x in kept.info.items() if hasattr(x, "dtype")}

    def image_of(self, kept: Any) -> Any:
        """Return navix's image of the whole grid."""
        return import_module("navix.observations").rgb(kept.state)


def adapt(env: Any) -> Any:
    """Convert an environment to a `FunctionalEnv`."""
    return NavixEnv(env)
