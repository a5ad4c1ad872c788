"""Actions as an environment means them, guided by its action space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = ["as_space_means"]


def as_space_means(action: Any, space: gym.Space[Any]) -> Any:
    """Give a NumPy action the form that `space.sample()` has.

    A 0-d array becomes a NumPy scalar where the space is Discrete: hashable, as environments that
    look actions up in a table need. Boxes and the other spaces take arrays as they are.
    """
    if isinstance(space, spaces.Discrete) and isinstance(action, (np.ndarray, np.generic)):
        return space.dtype.type(action) if action.ndim == 0 else action
    if isinstance(space, spaces.Dict) and isinstance(action, dict):
        return type(action)(
            (key, as_space_means(item, space[key]) if key in space.spaces else item)
            for key, item in action.items()
        )
    if (
        isinstance(space, spaces.Tuple)
        and type(action) in (tuple, list)
        and len(action) == len(space.spaces)
    ):
        return tuple(map(as_space_means, action, space.spaces))
    return action
