"""Gymnasium's wrappers for environments of any array library. Change the import, and the rest stays.

They compute in the library of the environment's arrays and on its device, also around the adapters of this package.
`arrayferry_gym.wrappers.vector` has those for vector environments; `arrayferry_gym.functional.wrap` puts the same
kernels, which are in `arrayferry_gym.wrappers.kernels`, around a `FunctionalEnv`.

Wrappers that treat arrays of every library alike are Gymnasium's own: they are here by the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
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
        epsilon: what is added to the variance under the root.

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
    """Divides rewards by the root of the running variance of discounted returns, as Gymnasium's wrapper does.

    The return of an episode does not go on in the next one, also if it was truncated.

    Args:
        env: the environment.
        gamma: the discount.
        epsilon: what is added to the variance under the root.

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


class ClipAction(KernelWrapper):
    """Clips actions to the bounds of their Box.

    Args:
        env: the environment.

    Raises:
        TypeError: the space of actions is no Box.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env, kernels.ClipAction())


class RescaleAction(KernelWrapper):
    """Maps actions between two bounds to those of the environment.

    Args:
        env: the environment.
        min_action: the lower bound of the agent's actions, a number or an array.
        max_action: the upper bound.

    Raises:
        TypeError: the space of actions is no Box.
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
    """Maps observations from the bounds of their Box to others.

    Args:
        env: the environment.
        min_obs: the lower bound after that, a number or an array.
        max_obs: the upper bound.

    Raises:
        TypeError: the space of observations is no Box.
        ValueError: the bounds do not fit.
    """

    def __init__(self, env: gym.Env[Any, Any], min_obs: Any, max_obs: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, min_obs=min_obs, max_obs=max_obs)
        super().__init__(env, kernels.RescaleObservation(min_obs, max_obs))


class ReshapeObservation(KernelWrapper):
    """Gives observations another shape.

    Args:
        env: the environment.
        shape: the shape.

    Attributes:
        shape: as given.

    Raises:
        TypeError: the space of observations is no Box, or the shape no tuple of integers.
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
        dtype: the dtype, as NumPy names it.

    Attributes:
        dtype: as given.

    Raises:
        TypeError: observations are no arrays of one dtype.
    """

    def __init__(self, env: gym.Env[Any, Any], dtype: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, dtype=dtype)
        super().__init__(env, kernels.DtypeObservation(dtype))
        self.dtype = dtype


class GrayscaleObservation(KernelWrapper):
    """Makes images of red, green and blue grey.

    Args:
        env: the environment.
        keep_dim: whether an axis of length 1 is left for the colours.

    Attributes:
        keep_dim: as given.

    Raises:
        TypeError: the space of observations is no Box.
        ValueError: it is not one of images.
    """

    def __init__(self, env: gym.Env[Any, Any], keep_dim: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, keep_dim=keep_dim)
        super().__init__(env, kernels.GrayscaleObservation(keep_dim))
        self.keep_dim = keep_dim


class TimeAwareObservation(KernelWrapper):
    """Adds the number of steps of the episode to observations.

    Args:
        env: the environment, with a limit of steps.
        flatten: whether the result is an array of one axis, rather than a dict or tuple.
        normalize_time: whether the number is divided by the limit of steps.
        dict_time_key: its key in a Dict.

    Attributes:
        flatten: as given.
        normalize_time: as given.
        max_timesteps: the limit of steps.

    Raises:
        ValueError: there is no limit, or the key is used already.
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
        """The number of steps of the episode so far."""
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
