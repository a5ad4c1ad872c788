"""Kernels that change actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

import arrayferry as af
from arrayferry.extending import dtype_name
from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._arrays import cast_clipped, cast_fitting, dtype_in, select
from arrayferry_gym._random import Random
from arrayferry_gym._spaces.trees import build, leaves, split

from .kernel import Kernel, Spaces, State
from .of_gymnasium import OfGymnasium, as_float, rescaling


class ClipAction(OfGymnasium):
    """Clips the agent's actions to the bounds of the action space.

    Raises:
        TypeError: the action space is not a Box.

    Examples:
        >>> from arrayferry_envs import Pendulum, wrap
        >>> from arrayferry_gym.wrappers.kernels import ClipAction
        >>> envs = wrap(Pendulum(), ClipAction()).make_vec(2)
        >>> envs.single_action_space
        Box(-inf, inf, (1,), float32)
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        # Gymnasium's wrapper uses the bounds -inf and inf, which fail for unsigned integers
        if isinstance(action, Box) and action.dtype.kind == "u":
            dtype_max = np.iinfo(action.dtype).max
            return observation, Box(0, dtype_max, action.shape, action.dtype.type)
        return super().spaces(observation, action)

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        bounds = spaces.action.low, spaces.action.high  # type: ignore[attr-defined]
        return State(fixed=tuple(xp.asarray(x[None].copy(), device=device) for x in bounds))

    def action(
        self, xp: Namespace, rng: Random, state: State, action: AnyTree
    ) -> tuple[State, Any]:
        low, high = state.fixed
        return state, xp.where(action < low, low, xp.where(action > high, high, action))


class RescaleAction(OfGymnasium):
    """Maps the agent's actions linearly from [`min_action`, `max_action`] to the bounds of the action space.

    If the action space is a Box of integers, the agent's actions are floats. The results are rounded and clipped.

    Args:
        min_action: the lower bound of the agent's actions, a number or an array.
        max_action: the upper bound of the agent's actions, a number or an array.

    Raises:
        TypeError: the action space is not a Box.
        ValueError: a bound is an array of another shape than actions, `min_action` is above `max_action`, or a bound is
            infinite in only one of the two ranges.

    Examples:
        >>> from arrayferry_envs import Pendulum, wrap
        >>> from arrayferry_gym.wrappers.kernels import RescaleAction
        >>> envs = wrap(Pendulum(), RescaleAction(-1, 1)).make_vec(2)
        >>> envs.single_action_space
        Box(-1.0, 1.0, (1,), float32)
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, min_action: Any, max_action: Any) -> None:
        self.min_action = min_action
        self.max_action = max_action

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return observation, super().spaces(observation, as_float(action))[1]

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        box: Any = spaces.action
        scale = rescaling(xp, box, self.min_action, self.max_action, device).fixed
        if box.dtype.kind == "f":
            return State(fixed=(scale, ()))
        dtype = np.dtype(dtype_name(scale[0].dtype))
        bounds = (_inner(bound, dtype) for bound in (box.low, box.high))
        return State(fixed=(scale, tuple(xp.asarray(x[None], device=device) for x in bounds)))

    def action(
        self, xp: Namespace, rng: Random, state: State, action: AnyTree
    ) -> tuple[State, Any]:
        (*divisor, factor, intercept), bounds = state.fixed
        if bounds:
            action = xp.astype(action, factor.dtype)
        action = (action - intercept) / factor
        if divisor:
            action = action * divisor[0]
        if not bounds:
            return state, action
        low, high = bounds
        self.refuse_nan(xp, action)
        action = xp.where(action > low, xp.where(action < high, xp.round(action), high), low)
        return state, xp.astype(action, dtype_in(xp, self.inside.action.dtype))

    def refuse_nan(self, xp: Namespace, action: AnyTree) -> None:
        """Refuse NaN in actions for a Box of integers. Traced actions are not checked.

        Raises:
            arrayferry.ConversionError: an action is NaN.
        """
        takes_integers = self.inside.action.dtype.kind != "f"  # type: ignore[union-attr]
        is_traced = af.registry.kind(action).backend.is_traced(action)  # type: ignore[union-attr]
        if takes_integers and not is_traced and bool(xp.any(xp.isnan(action))):
            raise af.ConversionError(
                f"an action is {action!r:.80}, but NaN cannot be rounded to a whole number. Pass finite numbers"
            )


def _inner(bound: AnyArray, dtype: Any) -> Any:
    """Return integer bounds as floats. A bound that the dtype cannot represent is rounded towards 0."""
    x = bound.astype(dtype)
    is_outside = abs(x.astype(object)) > abs(bound.astype(object))
    return np.where(np.asarray(is_outside, bool), np.nextafter(x, dtype.type(0)), x)


class StickyAction(OfGymnasium):
    """Randomly repeats the last action in place of the agent's action, independently in each environment.

    Args:
        repeat_action_probability: the probability that repetitions begin at a step.
        repeat_action_duration: the number of repetitions, or a pair (lowest, highest) to draw the number from.

    Raises:
        gymnasium.error.InvalidProbability: the probability is negative, or is 1 or more.
        ValueError: the number of repetitions is not positive, or is neither a number nor a pair.

    Examples:
        >>> from arrayferry_envs import Pendulum, wrap
        >>> from arrayferry_gym.wrappers.kernels import StickyAction
        >>> envs = wrap(Pendulum(), StickyAction(0.25)).make_vec(2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> observations[0].shape
        (3,)
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        repeat_action_probability: float,
        repeat_action_duration: int | tuple[int, int] = 1,
    ) -> None:
        self.repeat_action_probability = repeat_action_probability
        self.repeat_action_duration = repeat_action_duration

    def init(self, xp: Namespace, n: int, spaces: Spaces, device: Device) -> State:
        last_actions = tuple(
            xp.zeros((n, *(space.shape or ())), dtype=dtype_in(xp, space.dtype), device=device)
            for space, _ in leaves(spaces.action)
        )
        known = xp.zeros((n,), dtype=xp.bool, device=device)
        return State({
            "last": last_actions, "known": known, "left": xp.zeros((n,), dtype=xp.int32, device=device)
        })  # fmt: skip

    def action(
        self, xp: Namespace, rng: Random, state: State, action: AnyTree
    ) -> tuple[State, Any]:
        last_actions, known, num_left = (state.episode[name] for name in ("last", "known", "left"))
        n, duration = known.shape[0], self.repeat_action_duration
        low, high = (duration, duration) if isinstance(duration, int) else duration
        chance_mask = rng.uniform((n,), 0.0, 1.0) < self.repeat_action_probability
        begin_mask = known & chance_mask & (num_left == 0)
        count = xp.astype(rng.integers((n,), low, high + 1), num_left.dtype)
        num_left = xp.where(begin_mask, count, num_left)
        repeat_mask = num_left > 0
        # actions outside the range of their dtype are clipped for a Box, and refused for other spaces
        is_box = isinstance(self.inside.action, Box)
        cast: Any = cast_clipped if is_box else partial(cast_fitting, what="an action")
        taken = tuple(
            select(xp, repeat_mask, last_x, cast(new_x, last_x.dtype))
            for last_x, new_x in zip(last_actions, split(self.inside.action, action), strict=True)
        )
        episode = {
            "last": taken, "known": xp.ones_like(known), "left": num_left - xp.astype(repeat_mask, num_left.dtype)
        }  # fmt: skip
        return state._replace(episode=episode), build(self.inside.action, taken)


class TransformAction(Kernel):
    """Applies a function to actions.

    Args:
        func: maps the agent's actions, (n, ...), to actions for the environment.
        action_space: the space of one action of the agent, or None for the environment's action space.

    Examples:
        >>> from arrayferry_envs import Pendulum, wrap
        >>> from arrayferry_gym.wrappers.kernels import TransformAction
        >>> envs = wrap(Pendulum(), TransformAction(lambda action: -action)).make_vec(2)
        >>> envs.single_action_space
        Box(-2.0, 2.0, (1,), float32)
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, func: Callable[[Any], Any], action_space: Space[Any] | None = None) -> None:
        self.func = func
        self.action_space = action_space

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        return observation, self.action_space or action

    def action(
        self, xp: Namespace, rng: Random, state: State, action: AnyTree
    ) -> tuple[State, Any]:
        return state, self.func(action)
