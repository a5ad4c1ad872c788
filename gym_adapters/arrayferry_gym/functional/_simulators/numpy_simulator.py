"""The simulator in NumPy."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from arrayferry.adapting import map_arrays
from arrayferry_gym.functional._contract.params import Params

from .simulator import Simulator


class NumpySimulator(Simulator):
    """In NumPy, only environments that have ended are reset, and only arrays that are held elsewhere are copied."""

    def _renewed(self, state: Any, mask: Any, params: Params, given: Any = None) -> Any:
        env, rows = self.env, np.flatnonzero(mask)
        if not len(rows):
            return state
        if given is None:
            starts = env.leaves(env.reset(self.rng, len(rows), params.rows(rows)))
        else:
            starts = [leaf[rows] for leaf in env.leaves(given)]
        renewed = []
        for old, new in zip(env.leaves(state), starts, strict=True):
            leaf = old.copy()
            leaf[rows] = new
            renewed.append(leaf)
        return env.join(renewed)

    def _apart(self, tree: Any, state: Any, params: Params) -> Any:
        env = self.env
        return _own(tree, [*env.leaves(state), *params.arrays], env.held())

    def first(self, tree: Any) -> Any:
        """Return the first row of each array in a tree."""
        if isinstance(tree, np.ndarray):
            return tree[0, ...]
        if type(tree) is dict:  # quicker than as any tree
            return {key: self.first(part) for key, part in tree.items()}
        return super().first(tree)

    def _device(self) -> Any:
        return _HERE


_HERE = contextlib.nullcontext()


def _own(value: Any, others: list[Any], held: frozenset[int]) -> Any:
    """Return a value in memory of its own, by copies of arrays that are held elsewhere.

    Args:
        value: an array, or a tree of arrays.
        others: arrays that are held elsewhere: states, parameters, and other results. It gets those of this one.
        held: the ids of the arrays of the environment.
    """
    if type(value) is np.ndarray or isinstance(value, np.ndarray):
        if value.base is not None or id(value) in held:
            return value.copy()
        for other in others:
            if other is value or other.base is value:
                return value.copy()
        others.append(value)
        return value
    if type(value) is dict:  # quicker than as any tree
        return {key: _own(part, others, held) for key, part in value.items()}
    if type(value) is tuple:
        return tuple([_own(part, others, held) for part in value])
    return map_arrays(lambda x: _own(x, others, held) if isinstance(x, np.ndarray) else x, value)
