"""`Observations`: the batch of observations that a step or reset returns, put together from those of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from arrayferry_gym._spaces.batches import Piece, join, numbers_of
from arrayferry_gym._spaces.trees import build, split

from .progress import Progress
from .records import EnvRecord


class Observations:
    """Puts observations together, and remembers those that were returned last.

    Args:
        space: the space of one observation.
        num_envs: the number of environments.
    """

    def __init__(self, space: Space[Any], num_envs: int) -> None:
        self._space = space
        self._num_envs = num_envs
        self._last: Sequence[Piece] = []

    def piece(self, env: EnvRecord, observation: Any) -> Piece:
        """Make a batch of the observation of one environment."""
        empty: Any = create_empty_array(self._space, 1, fn=np.zeros)
        return [env.index], concatenate(self._space, [observation], empty)

    def join(self, pieces: Sequence[Piece]) -> Any:
        """Put pieces together. Later pieces overwrite earlier ones."""
        self._last = pieces
        return join(self._space, pieces, self._num_envs)

    def last(self, env: EnvRecord) -> Any:
        """Return the observation of an environment that was returned last, in its own memory."""
        for rows, batch in reversed(self._last):
            numbers = numbers_of(rows, self._num_envs)
            if env.index in numbers:
                row = numbers.index(env.index)
                parts = [part[row] for part in split(self._space, batch)]
                return build(
                    self._space, (x.copy() if isinstance(x, np.ndarray) else x for x in parts)
                )
        raise LookupError(env.index)


def stacked(
    space: Space[Any], observations: Sequence[Any], indices: Sequence[int], progress: Progress
) -> Any:
    """Return a batch of observations. If one of them does not fit, `progress` says in which environment.

    Args:
        space: the space of one observation.
        observations: one for each environment.
        indices: the numbers of the environments.
        progress: where the host is.
    """
    empty: Any = create_empty_array(space, len(observations), fn=np.empty)
    try:
        return concatenate(space, observations, empty)
    except Exception:
        for index, observation in zip(indices, observations, strict=True):
            progress.env = index
            one: Any = create_empty_array(space, 1, fn=np.empty)
            concatenate(space, [observation], one)
        progress.env = None
        raise


def map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each array of a batch of observations."""
    if isinstance(tree, dict):
        return {key: map_arrays(function, part) for key, part in tree.items()}
    if type(tree) is tuple:
        return tuple(map_arrays(function, part) for part in tree)
    return function(tree)
