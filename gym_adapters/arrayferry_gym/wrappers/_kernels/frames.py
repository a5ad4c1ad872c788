"""Kernels that show earlier observations."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.wrappers.utils import create_zero_array

from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._arrays import cast_clipped, select
from arrayferry_gym._spaces.trees import build, leaves, split

from .kernel import Spaces, State
from .of_gymnasium import Observations


class _Frames(Observations):
    """A kernel that stores the latest observations in queues, the newest last."""

    _shown: ClassVar[Any]
    """The index or slice of the observations in a queue that the agent sees."""

    def _queues(self, xp: Namespace, n: int, values: AnyTree, length: int, device: Device) -> State:
        """Return a state with a queue (n, length, ...) for each leaf. Each entry is a copy of `values`."""
        parts = split(self.inside.observation, values)
        arrays = [
            # a copy, since users may later change the array that they passed as padding
            xp.asarray(np.array(x, space.dtype), device=device)
            for (space, _), x in zip(leaves(self.inside.observation), parts, strict=True)
        ]
        return State(tuple(xp.broadcast_to(x, (n, length, *x.shape)) for x in arrays))

    def seen(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        return self._next(xp, state, rows, self._pushed(xp, state.episode, observation))

    def _pushed(self, xp: Namespace, queues: Any, observation: AnyTree) -> tuple[Any, ...]:
        parts = split(self.inside.observation, observation)
        return tuple(
            xp.concat([queue[:, 1:, ...], cast_clipped(x[:, None, ...], queue.dtype)], axis=1)
            for queue, x in zip(queues, parts, strict=True)
        )

    def _next(self, xp: Namespace, state: State, rows: AnyArray, new: Any) -> tuple[State, Any]:
        """Set queues to `new` in the rows of a mask, or in all rows.

        Return the new state, and the agent's observations as copies.
        """
        if rows is not None:
            new = tuple(select(xp, rows, x, y) for x, y in zip(new, state.episode, strict=True))
        shown = (xp.asarray(queue[:, self._shown, ...], copy=True) for queue in new)
        return state._replace(episode=new), build(self.inside.observation, shown)


class FrameStackObservation(_Frames):
    """Stacks the latest observations, the newest last.

    Args:
        stack_size: the number of observations.
        padding_type: the entries before the first observation of an episode: "reset" for copies of the first
            observation, "zero" for zeros, or an observation.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import FrameStackObservation
        >>> envs = wrap(CartPole(), FrameStackObservation(3)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0].shape
        (3, 4)
    """

    _shown = slice(None)

    def __init__(self, stack_size: int, *, padding_type: Any = "reset") -> None:
        self.stack_size = stack_size
        self.padding_type = padding_type

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        padding = self.padding_type
        if isinstance(padding, str):
            padding = create_zero_array(spaces.observation)
        return self._queues(xp, n, padding, self.stack_size, device)

    def reset(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        queues = self._pushed(xp, state.episode, observation)
        if isinstance(self.padding_type, str) and self.padding_type == "reset":
            queues = tuple(xp.broadcast_to(queue[:, -1:, ...], queue.shape) for queue in queues)
        return self._next(xp, state, rows, queues)


class DelayObservation(_Frames):
    """Delays observations by `delay` steps. The first `delay` observations of an episode are zeros.

    Args:
        delay: the number of steps.

    Examples:
        >>> from arrayferry_envs import CartPole, wrap
        >>> from arrayferry_gym.wrappers.kernels import DelayObservation
        >>> envs = wrap(CartPole(), DelayObservation(1)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations[0]
        array([0., 0., 0., 0.], dtype=float32)
    """

    _shown = 0

    def __init__(self, delay: int) -> None:
        self.delay = delay

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        return self._queues(xp, n, create_zero_array(spaces.observation), self.delay + 1, device)
