"""Base classes of kernels that have the name, arguments and spaces of a wrapper of Gymnasium."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import Space, spaces

from arrayferry.typing import AnyArray, AnyTree, Device, Namespace
from arrayferry_gym._episodes import Step

from .kernel import Kernel, State, arguments_of


class _Shell(gym.Env[Any, Any]):
    """An environment that has only spaces. Gymnasium's wrappers around it compute the spaces that the agent sees."""

    def __init__(self, observation: Space[Any], action: Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action


class OfGymnasium(Kernel):
    """A kernel with the arguments and spaces of Gymnasium's wrapper of the same name."""

    _original: type[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(gym.wrappers, cls.__name__):
            cls._original = getattr(gym.wrappers, cls.__name__)

    def spaces(self, observation: Space[Any], action: Space[Any]) -> tuple[Space[Any], Space[Any]]:
        try:
            # Gymnasium's wrapper warns if it divides by a width of 0, where both bounds are equal
            with np.errstate(all="ignore"):
                wrapper = self._original(_Shell(observation, action), **arguments_of(self))
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
    """A kernel that changes each observation independently."""

    parts: ClassVar[tuple[str, ...]] = ("observation",)

    def of(self, xp: Namespace, state: State, observation: AnyTree) -> Any:
        """Return the observations for the agent, (n, ...), given those of the environment."""
        raise NotImplementedError

    def reset(
        self, xp: Namespace, state: State, rows: AnyArray, observation: AnyTree
    ) -> tuple[State, Any]:
        return state, self.of(xp, state, observation)

    def step(self, xp: Namespace, state: State, result: Step) -> tuple[State, Step]:
        return state, Step(self.of(xp, state, result.observation), *result[1:])


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
    old_half, new_half, intercept = np.ones(box.shape), np.ones(box.shape), np.zeros(box.shape)
    both = np.isfinite(low) & np.isfinite(high)
    old_half[both], new_half[both] = (own_high / 2 - own_low / 2)[both], (high / 2 - low / 2)[both]
    has_high, has_low = np.isfinite(high), np.isfinite(low)
    intercept[has_high] = high[has_high] - own_high[has_high]
    with np.errstate(all="ignore"):
        intercept[has_low] = low[has_low] - own_low[has_low] / old_half[has_low] * new_half[has_low]
    fixed_at = both & (own_low == own_high)  # where both bounds are equal, values are only shifted
    old_half[fixed_at] = new_half[fixed_at] = 1
    intercept[fixed_at] = (low - own_low)[fixed_at]
    dtype = box.dtype if box.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(all="ignore"):
        factor, limits = abs(new_half / old_half), np.finfo(dtype)
    factor_fits = ((factor >= limits.tiny) & (factor <= limits.max)).all()
    parts = (new_half / old_half, intercept) if factor_fits else (old_half, new_half, intercept)
    fixed = (x[None].astype(dtype) for x in parts)
    return State(fixed=tuple(xp.asarray(x, device=device) for x in fixed))
