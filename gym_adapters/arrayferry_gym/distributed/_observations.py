"""`Observations`: the batch of observations that a step or reset returns, put together from those of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import concatenate, create_empty_array

from arrayferry_gym._batches import join
from arrayferry_gym._space_trees import ARRAYS, build, leaves, split

from ._engine import Engine
from ._progress import Progress
from ._records import EnvRecord

__all__ = ["Observations", "Piece", "is_stackable", "map_arrays", "stacked"]

Piece = tuple[Sequence[int], Any]
"""Some environments, and a batch of their observations: of arrays, or of references to arrays on workers."""


class Observations:
    """Puts observations together, and remembers those that were returned last.

    Args:
        space: the space of one observation.
        num_envs: the number of environments.
        engine: makes Dask arrays of observations that stay on the workers, None if they do not.
    """

    def __init__(
        self,
        space: Space[Any],
        num_envs: int,
        engine: Engine | None,
    ) -> None:
        self._space = space
        self._num_envs = num_envs
        self._engine = engine
        self._last: Sequence[Piece] = []

    def piece(self, env: EnvRecord, observation: Any) -> Piece:
        """Make a batch of the observation of one environment."""
        empty: Any = create_empty_array(self._space, 1, fn=np.zeros)
        return (env.index,), concatenate(self._space, [observation], empty)

    def join(self, pieces: Sequence[Piece]) -> Any:
        """Put pieces together. Later pieces overwrite earlier ones."""
        if self._engine is None:
            self._last = pieces
            return join(self._space, pieces, self._num_envs)
        return _join_lazily(pieces, self._engine, self._num_envs)

    def last(self, env: EnvRecord) -> Any:
        """Return the observation of an environment that was returned last, in its own memory.

        If observations stay on the workers, that of a lost environment is gone. The first of its new episode
        stands in for it.
        """
        if self._engine is not None:
            assert env.first is not None
            return env.first[0]
        for indices, batch in reversed(self._last):
            if env.index in indices:
                row = list(indices).index(env.index)
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


def is_stackable(space: Space[Any]) -> bool:
    """Tell whether a batch of observations consists of arrays only."""
    return all(isinstance(leaf, ARRAYS) for leaf, _ in leaves(space))


def map_arrays(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to each array of a batch of observations."""
    if isinstance(tree, dict):
        return {key: map_arrays(function, part) for key, part in tree.items()}
    if type(tree) is tuple:
        return tuple(map_arrays(function, part) for part in tree)
    return function(tree)


def _is_remote(batch: Any) -> bool:
    """Tell whether a batch consists of references to arrays on workers."""
    local: list[bool] = []
    map_arrays(lambda array: local.append(isinstance(array, np.ndarray)), batch)
    return not any(local)


def _join_lazily(pieces: Sequence[Piece], engine: Engine, num_envs: int) -> Any:
    """Put pieces together as Dask arrays, without computing them."""
    import dask.array as da

    remote = [_is_remote(batch) for _, batch in pieces]
    assembled = iter(
        engine.assemble([batch for (_, batch), there in zip(pieces, remote, strict=True) if there])
    )
    arrays = [
        next(assembled) if there else map_arrays(da.from_array, batch)
        for (_, batch), there in zip(pieces, remote, strict=True)
    ]
    listed = [index for indices, _ in pieces for index in indices]
    rows = {index: row for row, index in enumerate(listed)}
    order = [rows[index] for index in range(num_envs)]

    def joined(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {key: joined([part[key] for part in parts]) for key in parts[0]}
        if isinstance(parts[0], tuple):
            return tuple(joined(list(inner)) for inner in zip(*parts, strict=True))
        whole = da.concatenate(parts)
        return whole if order == list(range(len(listed))) else whole[order]

    return joined(arrays)
