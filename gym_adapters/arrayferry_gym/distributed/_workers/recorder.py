"""`Recorder`: the trees of arrays of several steps, one after another in arrays (time, ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af


class Recorder:
    """Copies the arrays of each step, so that they may change afterwards.

    Args:
        name: what is recorded, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._forms: Any = None  # the layout, dtypes and shapes of the first step
        self._layout: Any = None
        self._steps: list[list[Any]] = []

    def write(self, tree: Any) -> None:
        """Copy the arrays of a step. They have the same structure, dtypes and shapes at each step.

        Raises:
            arrayferry.OptionError: they do not.
        """
        arrays, layout = ([tree], None) if type(tree) is np.ndarray else af.flatten(tree)
        copies = [np.array(array) for array in arrays]
        forms = layout, [(copy.dtype, copy.shape) for copy in copies]
        if not self._steps:
            self._forms, self._layout = forms, layout
        elif forms != self._forms:
            (before, first), (now, last) = self._forms, forms
            given = (first, last) if before == now else (before, now)
            raise af.OptionError(
                f"{self._name} was {given[0]} in step 0, and {given[1]} in step {len(self._steps)}",
                remedy="Return arrays of the same structure, dtypes and shapes at each step.",
            )
        self._steps.append(copies)

    def tree(self) -> Any:
        """Return the arrays of all steps."""
        arrays = [np.stack(column) for column in zip(*self._steps, strict=True)]
        return arrays[0] if self._layout is None else self._layout.unflatten(arrays)
