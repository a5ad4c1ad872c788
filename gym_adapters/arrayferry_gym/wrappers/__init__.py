"""Gymnasium's wrappers for environments of any array library. Change the import, and the rest stays.

They compute in the library of the environment's arrays and on its device, also around the adapters of this package.
`arrayferry_gym.wrappers.vector` has those for vector environments; `arrayferry_gym.functional.wrap` puts the same
kernels, which are in `arrayferry_gym.wrappers.kernels`, around a `FunctionalEnv`.

Wrappers that treat arrays of every library alike are Gymnasium's own: they are here by the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import (
    DelayObservation,
    FilterObservation,
    FlattenObservation,
    FrameStackObservation,
    RecordEpisodeStatistics,
    StickyAction,
    TransformAction,
    TransformObservation,
    TransformReward,
)

import arrayferry_gym.wrappers.kernels as kernels

from ._driver import HasObsRms, HasReturnRms
from ._single import KernelWrapper
from ._statistics import Statistics, merge

__all__ = [
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "KernelWrapper",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "Statistics",
    "StickyAction",
    "TimeAwareObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
    "kernels",
    "merge",
    "vector",
]


class NormalizeObservation(HasObsRms, KernelWrapper):
    """Shifts and scales observations by their running mean and variance, as Gymnasium's wrapper does.

    Args:
        env: the environment.
        epsilon: the number added to the variance under the square root.

    Attributes:
        epsilon: as given.

    Raises:
        gymnasium.error.InvalidBound: `epsilon` is not positive.
        ValueError: observations have no shape.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_gym import ArrayConversion
        >>> from arrayferry_gym.wrappers import NormalizeObservation
        >>> env = NormalizeObservation(ArrayConversion(gym.make("CartPole-v1"), target_xp="torch"))
        >>> observation, info = env.reset(seed=1)
        >>> observation.shape, env.state_dict()["obs_rms"]["count"]
        (torch.Size([4]), 1)
    """

    def __init__(self, env: gym.Env[Any, Any], epsilon: float = 1e-8) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, epsilon=epsilon)
        super().__init__(env, kernels.NormalizeObservation(epsilon))
        self.epsilon = epsilon


class NormalizeReward(HasReturnRms, KernelWrapper):
    """Divides rewards by the square root of the running variance of discounted returns, as Gymnasium's wrapper does.

    The return of an episode does not carry over into the next one, even if it was truncated.

    Args:
        env: the environment.
        gamma: the discount factor.
        epsilon: the number added to the variance under the square root.

    Attributes:
        gamma: as given.
        epsilon: as given.

    Raises:
        gymnasium.error.InvalidBound: `gamma` is not between 0 and 1, or `epsilon` is not positive.
    """

    def __init__(self, env: gym.Env[Any, Any], gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, gamma=gamma, epsilon=epsilon)
        super().__init__(env, kernels.NormalizeReward(gamma, epsilon))
        self.gamma = gamma
        self.epsilon = epsilon

    @property
    def discounted_reward(self) -> Any:
        """The discounted return of the current episode so far, (1,)."""
        state = self._driver.state
        return np.zeros(1) if state is None else state.episode["return"]


class ClipAction(KernelWrapper):
    """Clips actions to the bounds of their Box.

    Args:
        env: the environment.

    Raises:
        TypeError: the action space is not a Box.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env, kernels.ClipAction())


class RescaleAction(KernelWrapper):
    """Maps actions from a given range to the bounds of the environment.

    Args:
        env: the environment.
        min_action: the lower bound of the agent's actions, a number or an array.
        max_action: the upper bound.

    Raises:
        TypeError: the action space is not a Box.
        ValueError: the bounds do not fit.
    """

    def __init__(self, env: gym.Env[Any, Any], min_action: Any, max_action: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, min_action=min_action, max_action=max_action)
        super().__init__(env, kernels.RescaleAction(min_action, max_action))


class ClipReward(KernelWrapper):
    """Clips rewards.

    Args:
        env: the environment.
        min_reward: the lower bound, None for none.
        max_reward: the upper bound, None for none.

    Raises:
        gymnasium.error.InvalidBound: there is no bound, or they are in the wrong order.
    """

    def __init__(
        self, env: gym.Env[Any, Any], min_reward: Any = None, max_reward: Any = None
    ) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, min_reward=min_reward, max_reward=max_reward)
        super().__init__(env, kernels.ClipReward(min_reward, max_reward))


class RescaleObservation(KernelWrapper):
    """Maps observations from the bounds of their Box to a given range.

    Args:
        env: the environment.
        min_obs: the lower bound of the result, a number or an array.
        max_obs: the upper bound.

    Raises:
        TypeError: the observation space is not a Box.
        ValueError: the bounds do not fit.
    """

    def __init__(self, env: gym.Env[Any, Any], min_obs: Any, max_obs: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, min_obs=min_obs, max_obs=max_obs)
        super().__init__(env, kernels.RescaleObservation(min_obs, max_obs))


class ReshapeObservation(KernelWrapper):
    """Reshapes observations.

    Args:
        env: the environment.
        shape: the new shape.

    Attributes:
        shape: as given.

    Raises:
        TypeError: the observation space is not a Box, or the shape is not a tuple of integers.
        ValueError: the shape does not fit.
    """

    def __init__(self, env: gym.Env[Any, Any], shape: int | tuple[int, ...]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, shape=shape)
        super().__init__(env, kernels.ReshapeObservation(shape))
        self.shape = shape


class DtypeObservation(KernelWrapper):
    """Casts observations to another dtype.

    Args:
        env: the environment.
        dtype: the dtype, as a name, or as an object of NumPy or another library (`torch.float32`).

    Attributes:
        dtype: as given.

    Raises:
        TypeError: observations are not arrays of one dtype.
    """

    def __init__(self, env: gym.Env[Any, Any], dtype: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, dtype=dtype)
        super().__init__(env, kernels.DtypeObservation(dtype))
        self.dtype = dtype


class GrayscaleObservation(KernelWrapper):
    """Converts RGB images to greyscale.

    Args:
        env: the environment.
        keep_dim: whether to keep the colour axis, with length 1.

    Attributes:
        keep_dim: as given.

    Raises:
        TypeError: the observation space is not a Box.
        ValueError: it is not a space of images.
    """

    def __init__(self, env: gym.Env[Any, Any], keep_dim: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, keep_dim=keep_dim)
        super().__init__(env, kernels.GrayscaleObservation(keep_dim))
        self.keep_dim = keep_dim


class TimeAwareObservation(KernelWrapper):
    """Adds the number of steps in the episode to observations.

    Args:
        env: the environment, with a step limit.
        flatten: whether the result is a one-dimensional array, rather than a dict or tuple.
        normalize_time: whether the number is divided by the step limit.
        dict_time_key: its key in a Dict.

    Attributes:
        flatten: as given.
        normalize_time: as given.
        max_timesteps: the step limit.

    Raises:
        ValueError: there is no limit, or the key is already in use.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        flatten: bool = True,
        normalize_time: bool = False,
        *,
        dict_time_key: str = "time",
    ) -> None:
        arguments: dict[str, Any] = {
            "flatten": flatten, "normalize_time": normalize_time, "dict_time_key": dict_time_key
        }  # fmt: skip
        gym.utils.RecordConstructorArgs.__init__(self, **arguments)
        super().__init__(env, kernels.TimeAwareObservation(**arguments))
        self.flatten = flatten
        self.normalize_time = normalize_time
        self.max_timesteps: int | None = self._driver.kernel.inside.max_episode_steps

    @property
    def timesteps(self) -> int:
        """The number of steps in the episode so far."""
        state = self._driver.state
        return 0 if state is None else int(state.episode[0])


import arrayferry_gym.wrappers.vector as vector  # noqa: E402  # its classes are named after those above

if not TYPE_CHECKING:  # or checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        """Return Gymnasium's own wrapper of that name."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(gym.wrappers, name)


def __dir__() -> list[str]:
    return sorted(__all__)
