"""Gymnasium's wrappers for vector environments of any array library, in every autoreset mode and with partial resets.

They compute in the library of the environment's arrays and on its device, for all environments at once. Final
observations are those that the agent would have seen. Other wrappers are Gymnasium's own, by the same names.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import TransformAction, TransformReward

import arrayferry as af
import arrayferry_gym.wrappers.kernels as kernels
from arrayferry_gym._options.env_options import reset_mask_of

from ._driver import HasObsRms, HasReturnRms
from ._vector import KernelVectorWrapper

__all__ = [
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DictInfoToList",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "KernelVectorWrapper",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "StickyAction",
    "TimeAwareObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
]

Vector: TypeAlias = VectorEnv[Any, Any, Any]


class NormalizeObservation(HasObsRms, KernelVectorWrapper):
    """Shifts and scales observations by their running mean and variance.

    Each observation of an episode counts once: the first, those after steps, and the final one.

    Args:
        env: the vector environment.
        epsilon: the number added to the variance under the square root.

    Attributes:
        epsilon: as given.

    Raises:
        gymnasium.error.InvalidBound: `epsilon` is not positive.

    Examples:
        >>> import gymnasium as gym
        >>> from arrayferry_gym.wrappers.vector import NormalizeObservation
        >>> envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
        >>> envs = NormalizeObservation(envs)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.state_dict()["obs_rms"]["count"]
        2
    """

    def __init__(self, env: Vector, epsilon: float = 1e-8) -> None:
        super().__init__(env, kernels.NormalizeObservation(epsilon))
        self.epsilon = epsilon


class NormalizeReward(HasReturnRms, KernelVectorWrapper):
    """Divides rewards by the square root of the running variance of discounted returns.

    The return of an episode does not carry over into the next one, even if it was truncated.

    Args:
        env: the vector environment.
        gamma: the discount factor.
        epsilon: the number added to the variance under the square root.

    Attributes:
        gamma: as given.
        epsilon: as given.

    Raises:
        gymnasium.error.InvalidBound: `gamma` is not between 0 and 1, or `epsilon` is not positive.
    """

    def __init__(self, env: Vector, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        super().__init__(env, kernels.NormalizeReward(gamma, epsilon))
        self.gamma = gamma
        self.epsilon = epsilon

    @property
    def accumulated_reward(self) -> Any:
        """The discounted returns of the current episodes so far, (num_envs,)."""
        state = self._driver.state
        return np.zeros(self.num_envs) if state is None else state.episode["return"]


class RecordEpisodeStatistics(KernelVectorWrapper):
    """Adds the returns, lengths and durations in seconds of finished episodes to infos: "r", "l" and "t".

    Args:
        env: the vector environment.
        buffer_length: the number of episodes that the queues hold.
        stats_key: the key in infos.

    Attributes:
        episode_count: the number of finished episodes.
        return_queue: the returns of the latest episodes.
        length_queue: their lengths.
        time_queue: their durations in seconds.
    """

    def __init__(self, env: Vector, buffer_length: int = 100, stats_key: str = "episode") -> None:
        super().__init__(env, kernels.RecordEpisodeStatistics(buffer_length, stats_key))
        self._stats_key = stats_key
        self.episode_count: int = 0
        self.return_queue: deque[float] = deque(maxlen=buffer_length)
        self.length_queue: deque[int] = deque(maxlen=buffer_length)
        self.time_queue: deque[float] = deque(maxlen=buffer_length)
        self.episode_start_times: Any = np.zeros(self.num_envs)

    @property
    def episode_returns(self) -> Any:
        """The returns of the current episodes so far."""
        state = self._driver.state
        return np.zeros(self.num_envs) if state is None else state.episode["r"]

    @property
    def episode_lengths(self) -> Any:
        """The lengths of the current episodes so far."""
        state = self._driver.state
        return np.zeros(self.num_envs, int) if state is None else state.episode["l"]

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those in the option `reset_mask`."""
        mask = options.get("reset_mask") if isinstance(options, dict) else None
        results = super().reset(seed=seed, options=options)
        rows = reset_mask_of(mask, self.num_envs)
        self.episode_start_times[slice(None) if rows is None else rows] = time.perf_counter()
        return results

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in all environments."""
        *results, infos = super().step(actions)
        turn, now = self._turn, time.perf_counter()
        done = turn.done
        if done.any():
            seconds = np.round(now - self.episode_start_times, 6)
            values = infos[self._stats_key]
            values["t"] = np.where(done, seconds, 0.0)
            returns, lengths = self._to_numpy((values["r"], values["l"]))
            self.episode_count += int(done.sum())
            self.time_queue.extend(seconds[done])
            self.return_queue.extend(returns[done])
            self.length_queue.extend(lengths[done])
        if turn.begins is not None:
            self.episode_start_times[turn.begins] = now
        return (*results, infos)


class TransformObservation(KernelVectorWrapper):
    """Applies a function to observations, including final ones.

    Args:
        env: the vector environment.
        func: takes and returns observations of all environments.
        observation_space: their space, None if it follows from the next argument or does not change.
        single_observation_space: the space of one observation, None if it does not change.

    Attributes:
        func: as given.
    """

    def __init__(
        self,
        env: Vector,
        func: Callable[[Any], Any],
        observation_space: Space[Any] | None = None,
        single_observation_space: Space[Any] | None = None,
    ) -> None:
        super().__init__(env, kernels.TransformObservation(func, single_observation_space))
        if observation_space is not None:
            self.observation_space = observation_space
        if self.observation_space != batch_space(self.single_observation_space, self.num_envs):
            gym.logger.warn(
                f"For {env}, the observation space and the batched single observation space don't match as expected: "
                f"{self.observation_space} and {self.single_observation_space}"
            )
        self.func = func


class ClipAction(KernelVectorWrapper):
    """Clips actions to the bounds of their Box.

    Args:
        env: the vector environment.
    """

    def __init__(self, env: Vector) -> None:
        super().__init__(env, kernels.ClipAction())


class RescaleAction(KernelVectorWrapper):
    """Maps actions from a given range to the bounds of the environment.

    Args:
        env: the vector environment.
        min_action: the lower bound of the agent's actions, a number or an array.
        max_action: the upper bound.
    """

    def __init__(self, env: Vector, min_action: Any, max_action: Any) -> None:
        super().__init__(env, kernels.RescaleAction(min_action, max_action))


class StickyAction(KernelVectorWrapper):
    """Randomly repeats the last action in place of the agent's, independently in each environment.

    Args:
        env: the vector environment.
        repeat_action_probability: the probability at each step.
        repeat_action_duration: the number of repetitions, or the lowest and the highest number.
    """

    def __init__(
        self,
        env: Vector,
        repeat_action_probability: float,
        repeat_action_duration: int | tuple[int, int] = 1,
    ) -> None:
        super().__init__(
            env, kernels.StickyAction(repeat_action_probability, repeat_action_duration)
        )


class ClipReward(KernelVectorWrapper):
    """Clips rewards.

    Args:
        env: the vector environment.
        min_reward: the lower bound, None for none.
        max_reward: the upper bound, None for none.
    """

    def __init__(self, env: Vector, min_reward: Any = None, max_reward: Any = None) -> None:
        super().__init__(env, kernels.ClipReward(min_reward, max_reward))


class RescaleObservation(KernelVectorWrapper):
    """Maps observations from the bounds of their Box to a given range.

    Args:
        env: the vector environment.
        min_obs: the lower bound of the result, a number or an array.
        max_obs: the upper bound.
    """

    def __init__(self, env: Vector, min_obs: Any, max_obs: Any) -> None:
        super().__init__(env, kernels.RescaleObservation(min_obs, max_obs))


class ReshapeObservation(KernelVectorWrapper):
    """Reshapes observations.

    Args:
        env: the vector environment.
        shape: the new shape of one observation.
    """

    def __init__(self, env: Vector, shape: int | tuple[int, ...]) -> None:
        super().__init__(env, kernels.ReshapeObservation(shape))


class DtypeObservation(KernelVectorWrapper):
    """Casts observations to another dtype.

    Args:
        env: the vector environment.
        dtype: the dtype, as a name, or as an object of NumPy or another library (`torch.float32`).
    """

    def __init__(self, env: Vector, dtype: Any) -> None:
        super().__init__(env, kernels.DtypeObservation(dtype))


class GrayscaleObservation(KernelVectorWrapper):
    """Converts RGB images to greyscale.

    Args:
        env: the vector environment.
        keep_dim: whether to keep the colour axis, with length 1.
    """

    def __init__(self, env: Vector, keep_dim: bool = False) -> None:
        super().__init__(env, kernels.GrayscaleObservation(keep_dim))


class FlattenObservation(KernelVectorWrapper):
    """Flattens each environment's observation into a one-dimensional array.

    Args:
        env: the vector environment.
    """

    def __init__(self, env: Vector) -> None:
        super().__init__(env, kernels.FlattenObservation())


class FilterObservation(KernelVectorWrapper):
    """Leaves out parts of Dict or Tuple observations.

    Args:
        env: the vector environment.
        filter_keys: the keys to keep, or the indices in a Tuple.
    """

    def __init__(self, env: Vector, filter_keys: Sequence[str | int]) -> None:
        super().__init__(env, kernels.FilterObservation(filter_keys))


class FrameStackObservation(KernelVectorWrapper):
    """Stacks the latest observations, the newest last.

    Args:
        env: the vector environment.
        stack_size: the number of observations.
        padding_type: the padding before the first observation: "reset" for copies of it, "zero", or an observation.
    """

    def __init__(self, env: Vector, stack_size: int, *, padding_type: Any = "reset") -> None:
        super().__init__(env, kernels.FrameStackObservation(stack_size, padding_type=padding_type))


class DelayObservation(KernelVectorWrapper):
    """Delays observations by some steps, with zeros before the first.

    Args:
        env: the vector environment.
        delay: the number of steps.
    """

    def __init__(self, env: Vector, delay: int) -> None:
        super().__init__(env, kernels.DelayObservation(delay))


class TimeAwareObservation(KernelVectorWrapper):
    """Adds the number of steps in the episode to observations.

    Args:
        env: the vector environment.
        flatten: whether the result is a one-dimensional array, rather than a dict or tuple.
        normalize_time: whether the number is divided by the step limit, in float32.
        dict_time_key: its key in a Dict.
    """

    def __init__(
        self,
        env: Vector,
        flatten: bool = True,
        normalize_time: bool = False,
        *,
        dict_time_key: str = "time",
    ) -> None:
        super().__init__(
            env, kernels.TimeAwareObservation(flatten, normalize_time, dict_time_key=dict_time_key)
        )


if TYPE_CHECKING:
    _DictInfoToList = gym.wrappers.vector.DictInfoToList[Any, Any, Any]
else:
    _DictInfoToList = gym.wrappers.vector.DictInfoToList


class DictInfoToList(_DictInfoToList):
    """Turns infos into a list of dicts, one for each environment, with NumPy values.

    Args:
        env: the vector environment.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Take a step in all environments."""
        *results, infos = self.env.step(actions)
        return (*results, self._listed(infos))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Reset all environments, or those in the option `reset_mask`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, self._listed(infos)

    def _listed(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        return self._convert_info_to_list(af.convert(infos, "numpy", unsupported="keep"))


if not TYPE_CHECKING:  # or checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        """Return Gymnasium's own wrapper of that name."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(gym.wrappers.vector, name)


def __dir__() -> list[str]:
    return sorted(__all__)
