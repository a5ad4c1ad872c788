"""Kernels that change each reward independently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from arrayferry.typing import AnyArray, Device, Namespace
from arrayferry_gym._arrays import as_rewards
from arrayferry_gym._episodes import Step

from .kernel import Kernel, Spaces, State
from .of_gymnasium import OfGymnasium


class ClipReward(OfGymnasium):
    """Clips rewards to the range `min_reward` to `max_reward`.

    Args:
        min_reward: the lower bound, a number or an array, or None for no bound.
        max_reward: the upper bound, a number or an array, or None for no bound.

    Raises:
        gymnasium.error.InvalidBound: both bounds are None, or `min_reward` is above `max_reward`.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import ClipReward
        >>> envs = wrap(CartPole(), ClipReward(-0.5, 0.5)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> float(rewards[0])
        0.5
    """

    parts: ClassVar[tuple[str, ...]] = ("reward",)

    def __init__(self, min_reward: Any = None, max_reward: Any = None) -> None:
        self.min_reward = min_reward
        self.max_reward = max_reward

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        bounds = (self.min_reward, self.max_reward)
        return State(fixed=tuple(_array(xp, x, device) for x in bounds))

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        return shape, dtype

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        reward = as_rewards(result.reward)
        low, high = map(_number_or, state.fixed, (self.min_reward, self.max_reward))
        if low is not None:
            reward = xp.where(reward < low, low, reward)
        if high is not None:
            reward = xp.where(reward > high, high, reward)
        return state, result._replace(reward=reward)


class TransformReward(Kernel):
    """Applies a function to rewards.

    Args:
        func: maps a batch of rewards, (n, ...), to a batch of new rewards.
        shape: the shape of one new reward, or None to determine the shape by a call of `func` with zeros.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import TransformReward
        >>> envs = wrap(CartPole(), TransformReward(lambda reward: 2 * reward)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> envs.step(envs.action_space.sample())[1]
        array([2., 2.], dtype=float32)
    """

    parts: ClassVar[tuple[str, ...]] = ("reward",)

    def __init__(self, func: Callable[[Any], Any], *, shape: tuple[int, ...] | None = None) -> None:
        self.func = func
        self.shape = shape

    def rewards(self, shape: Any, dtype: Any) -> tuple[tuple[int, ...], str | None]:
        return super().rewards(shape, dtype) if self.shape is None else (self.shape, None)

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        return state, result._replace(reward=self.func(result.reward))


def _array(xp: Namespace, x: AnyArray, device: Device) -> Any:
    """Convert a bound to an array of the library. Return None for a number, since its dtype could widen rewards."""
    if np.ndim(x) == 0:
        return None
    return xp.asarray(x.copy() if isinstance(x, np.ndarray) else x, device=device)


def _number_or(array: AnyArray, x: AnyArray) -> Any:
    """Return `array`, the result of `_array` for the bound `x`. If `array` is None, return `x` as a Python float.

    A Python float adopts the dtype of the rewards. If `x` is None, return None.
    """
    return array if array is not None or x is None else float(x)
