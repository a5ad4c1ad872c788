"""The stepper in NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from arrayferry.extending import map_arrays
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_envs._contract.params import Params

from .stepper import Result, Stepper, unmasked


class NumpyStepper(Stepper):
    """Draws fresh states only for environments to reset. Copies only results that share memory with other arrays."""

    def step_one(self, action: AnyTree, params: Params) -> tuple[Result, dict[str, Any]]:
        result, added = self._advance(action, params)
        observation, reward, terminated, truncated, infos = result
        info = self.first(unmasked(infos)) if infos else infos
        row_results = self.first(observation), self.first(reward), terminated[0], truncated[0], info
        return row_results, added

    def _renewed(self, state: AnyTree, mask: AnyArray, params: Params, initial: Any = None) -> Any:
        env, row_indices = self.env, mask.nonzero()[0]
        if not len(row_indices):
            return state
        if initial is None:
            fresh = env.reset(self.rng, len(row_indices), params.rows(row_indices), params.pinned)
            fresh_rows = env.leaves(fresh)
        else:
            fresh_rows = [leaf[row_indices] for leaf in env.leaves(initial)]
        leaves = [leaf.copy() for leaf in env.leaves(state)]
        for leaf, fresh_row in zip(leaves, fresh_rows, strict=True):
            leaf[row_indices] = fresh_row
        return env.join(leaves)

    def _unshared(self, tree: AnyTree, params: Params) -> Any:
        held_leaves = (*self.env.leaves(self.env_state.state), *params.arrays)
        held_ids = {*self.env.held(), *map(id, held_leaves), *[id(x.base) for x in held_leaves]}
        if self.env_state.wrappers:
            _hold(self.env_state.wrappers, held_ids)
        return _copied_if_held(tree, held_ids)

    def first(self, tree: AnyTree) -> Any:
        """Return a copy of the first row of each array in a tree of results."""
        return map_results(lambda x: x[0, ...].copy(), tree)

    def _device(self) -> Any:
        return _HERE


_HERE = contextlib.nullcontext()


def _hold(tree: AnyTree, ids: set[int]) -> None:
    """Add to `ids` the ids of the arrays in dicts, tuples and lists, and the ids of their base arrays."""
    if isinstance(tree, np.ndarray):
        ids.add(id(tree))
        ids.add(id(tree.base))
    elif isinstance(tree, (tuple, list, dict)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            _hold(part, ids)


def _copied_if_held(value: AnyTree, ids: set[int]) -> Any:
    """Return a value with copies of those of its arrays that may share memory with other arrays.

    Args:
        value: an array, or a tree of arrays.
        ids: the ids of the arrays in the states, the parameters, the environment and other results. The ids of the
            arrays in this value are added.
    """
    if isinstance(value, np.ndarray):
        if value.base is None and id(value) not in ids:
            ids.add(id(value))
            return value
        return value.copy()
    if type(value) is tuple:  # for tuples, this is faster than `map_arrays`
        return tuple([_copied_if_held(part, ids) for part in value])
    if type(value) is dict:
        return {key: _copied_if_held(part, ids) for key, part in value.items()} if value else value
    return map_arrays(lambda x: _copied_if_held(x, ids) if isinstance(x, np.ndarray) else x, value)


def map_results(function: Callable[[Any], Any], tree: AnyTree) -> Any:
    """Apply a function to each array in a tree, like `map_arrays`, but faster for tuples and dicts."""
    if isinstance(tree, np.ndarray):
        return function(tree)
    if type(tree) is tuple:
        return tuple([map_results(function, part) for part in tree])
    if type(tree) is dict:
        return {key: map_results(function, part) for key, part in tree.items()}
    return map_arrays(lambda x: function(x) if isinstance(x, np.ndarray) else x, tree)
