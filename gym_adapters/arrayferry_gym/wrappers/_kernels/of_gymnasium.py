"""Base classes of kernels that have the name, arguments and spaces of a wrapper of Gymnasium."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces

from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._episodes import Step

from .kernel import Kernel, State, arguments_of


class OfGymnasium(Kernel):
    """A kernel with the arguments and spaces of Gymnasium's wrapper of the same name."""

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        names = (cls.__name__ for cls in type(self).__mro__)
        original = next(getattr(gym.wrappers, x) for x in names if hasattr(gym.wrappers, x))
        # Gymnasium's wrapper around an environment that has only spaces computes the spaces that the agent sees
        env: gym.Env[Any, Any] = gym.Env()
        env.observation_space, env.action_space = observation, action
        try:
            # Gymnasium's wrapper warns if it divides by a width of 0, where both bounds are equal
            with np.errstate(all="ignore"):
                wrapper = original(env, **arguments_of(self))
        except (AssertionError, ValueError) as error:
            if str(error) and observation.shape is not None:
                raise
            reason = f". Gymnasium says: {error}" if str(error) else ""
            raise type(error)(
                f"{type(self).__name__} cannot be used with observations in {observation!r:.120} and actions in "
                f"{action!r:.120}. If observations must be a Box, put FlattenObservation inside{reason}"
            ) from error
        return wrapper.observation_space, wrapper.action_space


class Observations(OfGymnasium):
    """A kernel that changes observations, in the same way in steps and in resets.

    Subclasses override `seen`, or if each observation changes independently, `of`.
    """

    parts: ClassVar[tuple[str, ...]] = ("observation",)

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        """Return the observations for the agent, (n, ...), given those of the environment."""
        raise NotImplementedError

    def seen(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        """Return the new state, and the observations for the agent.

        Args:
            xp: a namespace of the Array API standard.
            state: the state before the call.
            rows: where an episode begins or goes on, bool (n,), or None for everywhere. Other rows must not change the
                state.
            observation: the observations of the environment.
        """
        return state, self.of(xp, state, observation)

    def reset(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        return self.seen(xp, state, rows, observation)

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        state, observation = self.seen(xp, state, result.valid, result.observation)
        return state, Step(observation, *result[1:])


def as_float(space: Any) -> Any:
    """Return a Box of integers as a Box of float32, which can be rescaled. Return any other space unchanged."""
    if not isinstance(space, spaces.Box) or space.dtype.kind == "f":
        return space
    low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)


def rescaling(xp: Namespace, box: Any, low: AnyArray, high: AnyArray, device: Device) -> State:
    """Return the linear map from a Box to other bounds: a `State` whose `fixed` is (factor, intercept).

    Both are arrays (1, ...) of the dtype of the Box, or float64 for a Box of integers. If the factor is out of the
    range of this dtype, `fixed` is (divisor, factor, intercept), where the divisor is half the old width, and the
    factor is half the new width.
    """
    low, high = (np.broadcast_to(np.asarray(x, np.float64), box.shape) for x in (low, high))
    own_low, own_high = box.low.astype(np.float64), box.high.astype(np.float64)
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    # where the old bounds are equal, or a bound is infinite, values are only shifted
    is_scaled = has_low & has_high & (own_low != own_high)
    with np.errstate(all="ignore"):
        old_half = np.where(is_scaled, own_high / 2 - own_low / 2, 1.0)
        new_half = np.where(is_scaled, high / 2 - low / 2, 1.0)
        intercept = np.where(has_high, high - own_high, 0.0)
        intercept = np.where(has_low, low - own_low / old_half * new_half, intercept)
        factor = new_half / old_half
    dtype = box.dtype if box.dtype.kind == "f" else np.dtype(np.float64)
    limits = np.finfo(dtype)
    factor_fits = ((abs(factor) >= limits.tiny) & (abs(factor) <= limits.max)).all()
    parts = (factor, intercept) if factor_fits else (old_half, new_half, intercept)
    return State(fixed=tuple(xp.asarray(x[None].astype(dtype), device=device) for x in parts))
