"""Wrappers for vector environments that do more than apply a kernel, or have no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym
from gymnasium import Space
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

import arrayferry as af
from arrayferry._utilities.compilers import uncompiled
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._episodes import checked_reset

from ._alone import HasObservations
from ._attributes import HasEpisodes
from ._driver import space_like
from ._kernels import observations, statistics
from ._vector import KernelVectorWrapper

Vector: TypeAlias = VectorEnv[Any, Any, Any]


@uncompiled
class RecordEpisodeStatistics(HasEpisodes, KernelVectorWrapper):
    """Adds the returns "r", lengths "l" and durations in seconds "t" of finished episodes to infos.

    Returns have the shape of rewards: with several objectives or agents, there is a return for each.

    Args:
        env: the vector environment.
        buffer_length: the maximum number of episodes in the queues.
        stats_key: the key of the statistics in infos.
        gamma: the discount factor of the discounted returns, which have the key "dr". None leaves out "dr".

    Attributes:
        episode_count: the number of finished episodes.
        return_queue: the returns of the latest episodes.
        length_queue: the lengths of the latest episodes.
        time_queue: the durations of the latest episodes in seconds.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.wrappers.vector import RecordEpisodeStatistics
        >>> envs = RecordEpisodeStatistics(CartPole().make_vec(2))
        >>> observations, infos = envs.reset(seed=1)
        >>> for _ in range(100):
        ...     *results, infos = envs.step(envs.action_space.sample())
        >>> envs.episode_count == len(envs.return_queue) > 0
        True
    """

    def __init__(
        self,
        env: Vector,
        buffer_length: int = 100,
        stats_key: str = "episode",
        *,
        gamma: float | None = None,
    ) -> None:
        kernel = statistics.RecordEpisodeStatistics(buffer_length, stats_key, gamma=gamma)
        super().__init__(env, kernel)
        self._stats_key = stats_key  # bridges read it, as in Gymnasium's wrapper
        self._set_up()

    def _note_reset(self, rows: AnyArray) -> None:
        super()._note_reset(rows)
        self._begin(rows)

    def step(self, actions: AnyTree) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        *results, infos = super().step(actions)
        self._note_step(self._episodes.masks, infos)
        return (*results, infos)


class TransformObservation(HasObservations, KernelVectorWrapper):
    """Applies a function to observations, including final observations.

    Args:
        env: the vector environment.
        func: maps a batch of observations to a batch of new observations.
        observation_space: the space of a batch of new observations, or None to batch `single_observation_space`.
        single_observation_space: the space of one new observation, or None if the space does not change.

    Attributes:
        func: the argument of this name.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.wrappers.vector import TransformObservation
        >>> envs = TransformObservation(CartPole().make_vec(2), lambda observations: abs(observations))
        >>> observations, infos = envs.reset(seed=1)
        >>> bool((observations >= 0).all())
        True
    """

    def __init__(
        self,
        env: Vector,
        func: Callable[[Any], Any],
        observation_space: Space[Any] | None = None,
        single_observation_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env, observations.TransformObservation(func, single_observation_space))
        if observation_space is not None:
            shown_space = space_like(observation_space, env.observation_space)
            self.observation_space = shown_space
        if self.observation_space != batch_space(self.single_observation_space, self.num_envs):
            gym.logger.warn(
                f"For {env}, the observation space and the batched single observation space don't match as expected: "
                f"{self.observation_space} and {self.single_observation_space}. Pass the batch of the single space"
            )
        self.func = func


if TYPE_CHECKING:
    _DictInfoToList = gym.wrappers.vector.DictInfoToList[Any, Any, Any]
else:
    _DictInfoToList = gym.wrappers.vector.DictInfoToList


@uncompiled
class DictInfoToList(_DictInfoToList):
    """Converts infos to a list of dicts with NumPy values, one dict for each environment.

    Args:
        env: the vector environment.

    Examples:
        >>> from arrayferry_envs import CartPole
        >>> from arrayferry_gym.wrappers.vector import DictInfoToList
        >>> envs = DictInfoToList(CartPole().make_vec(2))
        >>> observations, infos = envs.reset(seed=1)
        >>> type(infos), len(infos)
        (<class 'list'>, 2)
    """

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset all environments, or those in the option `reset_mask`."""
        forwarded = {**options} if isinstance(options, dict) else options
        observations, infos = checked_reset(self.env, self.env.reset(seed=seed, options=forwarded))
        return observations, self._convert_info_to_list(infos)

    def _convert_info_to_list(self, vector_infos: dict[str, Any]) -> list[dict[str, Any]]:
        infos = af.convert(vector_infos, "numpy", unsupported="keep")
        return super()._convert_info_to_list(infos)
