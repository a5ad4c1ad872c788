"""`Recorder`: the trees of arrays of several steps, one after another in arrays (time, ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af


class Recorder:
    """Writes the arrays of each step into arrays of all steps, so that they may change afterwards.

    Args:
        num_steps: how many steps there are.
        name: what is written, for errors.
    """

    def __init__(self, num_steps: int, name: str) -> None:
        self._num_steps = num_steps
        self._name = name
        self._layout: Any = None
        self._keys: tuple[Any, ...] | None = None  # of a dict, () for a single array
        self._arrays: list[Any] = []

    def write(self, step: int, tree: Any) -> None:
        """Write the arrays of a step. They have the same structure, dtypes and shapes at each step.

        Raises:
            arrayferry.OptionError: they do not.
        """
        leaves = self._quick_leaves(tree) or self._leaves(step, tree)
        for array, leaf in zip(self._arrays, leaves, strict=True):
            if array.dtype != leaf.dtype or array.shape[1:] != leaf.shape:
                raise self._other(step, f"{leaf.dtype} of shape {leaf.shape}", array)
            array[step] = leaf

    def _quick_leaves(self, tree: Any) -> list[Any] | None:
        """Return the arrays of an array, or of a dict of arrays, as in the previous step; None if it may be something else."""
        if type(tree) is np.ndarray:
            return [tree] if self._keys == () else None
        if type(tree) is dict and tree and self._keys == tuple(tree):
            leaves = list(tree.values())
            return leaves if all(type(leaf) is np.ndarray for leaf in leaves) else None
        return None

    def _leaves(self, step: int, tree: Any) -> list[Any]:
        arrays, layout = af.flatten(tree)
        leaves = [np.asarray(array) for array in arrays]
        if self._layout is None:
            self._layout = layout
            if type(tree) is np.ndarray:
                self._keys = ()
            elif type(tree) is dict and all(type(leaf) is np.ndarray for leaf in tree.values()):
                self._keys = tuple(tree)
            self._arrays = [np.empty((self._num_steps, *x.shape), x.dtype) for x in leaves]
        elif layout != self._layout:
            raise self._other(step, f"{layout}", self._layout)
        return leaves

    def _other(self, step: int, given: str, first: Any) -> af.OptionError:
        if isinstance(first, np.ndarray):
            first = f"{first.dtype} of shape {first.shape[1:]}"
        return af.OptionError(
            f"{self._name} was {first} in step 0, and {given} in step {step}",
            remedy="Return arrays of the same structure, dtypes and shapes at each step.",
        )

    def tree(self) -> Any:
        """Return the arrays of all steps."""
        return self._layout.unflatten(self._arrays)
