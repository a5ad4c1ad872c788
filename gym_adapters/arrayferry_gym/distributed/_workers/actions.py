"""The actions of a batch, divided among environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import iterate

import arrayferry as af
from arrayferry_gym._actions.fitter import Fitter
from arrayferry_gym._actions.warnings import ActionWarnings
from arrayferry_gym._spaces.batches import rows_of

_TO_NUMPY = af.converter("numpy", copy=True, unsupported="keep")


def split_actions(
    actions: Any, space: Space[Any], count: int, check: str, action_warnings: ActionWarnings
) -> Callable[[Sequence[int]], Any]:
    """Return a function that takes indices of environments, and returns their actions from a batch in any library.

    Args:
        actions: the batch.
        space: its space.
        count: how many environments there are.
        check: "fit", "strict" or "off", as in `check_actions`.
        action_warnings: warns of what is corrected.

    Raises:
        arrayferry.ConversionError: an action is refused, or there is not one for each environment.
    """
    given = actions
    if type(actions) is not np.ndarray and any(
        not isinstance(array, (np.ndarray, np.generic)) for array in af.flatten(actions)[0]
    ):
        actions = _TO_NUMPY([actions])[0]
    if check != "off":
        fitter = Fitter(space, strict=check == "strict", num_envs=count, passes_on=False)
        actions = fitter.fit(actions, given)
        action_warnings.warn(space, fitter.corrected, fitter.passed_on)
    try:
        if isinstance(actions, np.ndarray) and isinstance(space, _ARRAYS):
            length = len(actions)
            items: Any = actions
        else:
            items = list(iterate(space, actions))
            length = len(items)
    except Exception as error:
        raise _unfit(actions, space, count) from error
    if length != count:
        raise _unfit(actions, space, count)
    if items is actions:
        return lambda indices: actions[rows_of(indices)]
    return lambda indices: [items[index] for index in indices]


_ARRAYS = (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)


def _unfit(actions: Any, space: Space[Any], count: int) -> af.ConversionError:
    shape = getattr(actions, "shape", None)
    given = f"{actions!r:.80}" if shape is None else f"an array of shape {shape}"
    return af.ConversionError(
        f"{count} environments need one action each, of {space}, but got {given}",
        remedy="Pass a batch as action_space samples it.",
    )
