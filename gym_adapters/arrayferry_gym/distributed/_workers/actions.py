"""The actions of a batch of environments, fitted to their space."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import iterate

import arrayferry as af
from arrayferry_gym._actions.fitter import Fitter
from arrayferry_gym._actions.warnings import ActionWarnings
from arrayferry_gym._adapters.quick import range_test

_TO_NUMPY = af.converter("numpy", copy=True, unsupported="keep")


class BatchActions:
    """Fits actions for a batch of environments, from any library.

    Args:
        space: the space of the batch.
        num_envs: how many environments there are.
        check: "fit", "strict" or "off", as in `check_actions`.
    """

    def __init__(self, space: Space[Any], num_envs: int, check: str) -> None:
        self._space = space
        self._num_envs = num_envs
        self._check = check
        self._warnings = ActionWarnings()
        self._dtype: Any = (
            None  # of actions that are passed on after a quick check, None if there is none
        )
        self._in_range: Any = None
        if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
            self._in_range = range_test(space, space.dtype)
            self._dtype = None if self._in_range is None else space.dtype
        elif isinstance(space, spaces.Box) and check != "strict":
            self._dtype = space.dtype

    def __call__(self, actions: Any) -> Any:
        """Return actions with one item for each environment: an array, or a list.

        Raises:
            arrayferry.ConversionError: an action is refused, or there is not one for each environment.
        """
        if (
            self._dtype is not None  # which NumPy takes for float64
            and type(actions) is np.ndarray
            and actions.dtype == self._dtype
            and actions.shape == self._space.shape
            and (self._in_range is None or self._in_range(actions, actions))
        ):
            return actions
        return self._fitted(actions)

    def _fitted(self, actions: Any) -> Any:
        """Convert and check actions completely."""
        given, space = actions, self._space
        if type(actions) is not np.ndarray and any(
            not isinstance(array, (np.ndarray, np.generic)) for array in af.flatten(actions)[0]
        ):
            actions = _TO_NUMPY([actions])[0]
        if self._check != "off":
            strict = self._check == "strict"
            fitter = Fitter(space, strict=strict, num_envs=self._num_envs, passes_on=False)
            actions = fitter.fit(actions, given)
            self._warnings.warn(space, fitter.corrected, fitter.passed_on)
        try:
            one_array = isinstance(actions, np.ndarray) and isinstance(space, _ARRAYS)
            items = actions if one_array else list(iterate(space, actions))
            if len(items) == self._num_envs:
                return items
        except Exception as error:
            raise self._unfit(actions) from error
        raise self._unfit(actions)

    def _unfit(self, actions: Any) -> af.ConversionError:
        shape = getattr(actions, "shape", None)
        given = f"{actions!r:.80}" if shape is None else f"an array of shape {shape}"
        return af.ConversionError(
            f"{self._num_envs} environments need one action each, of {self._space}, but got {given}",
            remedy="Pass a batch as action_space samples it.",
        )


_ARRAYS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)
