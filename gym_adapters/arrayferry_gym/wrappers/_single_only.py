"""A wrapper for one environment that is more than a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium import Space

from ._driver import space_like


class TransformObservation(gym.wrappers.TransformObservation):
    """Applies a function to observations.

    Args:
        env: the environment.
        func: takes and returns an observation.
        observation_space: the space of the results, None if it is the same. Its samples are of the agent's library.

    Examples:
        >>> from arrayferry_gym.functional import CartPole
        >>> from arrayferry_gym.wrappers import TransformObservation
        >>> env = TransformObservation(CartPole().make(), lambda observation: abs(observation))
        >>> observation, info = env.reset(seed=1)
        >>> bool((observation >= 0).all())
        True
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        func: Callable[[Any], Any],
        observation_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env, func, observation_space)
        if observation_space is not None:
            space = space_like(observation_space, env.observation_space, observed=True)
            self.observation_space = space
