"""`Recorder`: stacks trees of arrays, one for each step, into a tree of arrays (time, ...)."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af
from arrayferry.typing import AnyTree


class Recorder:
    """Records a tree of arrays for each step. It copies the arrays, since environments may overwrite them.

    Args:
        name: the words for the tree in errors, such as "the action".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: list[tuple[Any, list[Any]]] = []  # for each step, a layout and arrays

    def write(self, tree: AnyTree) -> None:
        """Copy the arrays of a step."""
        layout: Any = type(tree)
        if layout is np.ndarray:
            arrays = [tree.copy()]
        elif tree is None:
            arrays = []
        elif layout is dict and all(type(x) is np.ndarray for x in tree.values()):
            layout, arrays = tuple(tree), [x.copy() for x in tree.values()]
        else:
            leaves, layout = af.flatten(tree)
            arrays = [np.array(x) for x in leaves]
        self._steps.append((layout, arrays))

    def tree(self) -> Any:
        """Return a tree of the same structure, in which each array stacks the arrays of all steps along axis 0.

        Raises:
            arrayferry.OptionError: the structure, dtypes or shapes differ between steps.
        """
        layout = self._steps[0][0]
        forms = [(layout, *[(x.dtype, x.shape) for x in arrays]) for layout, arrays in self._steps]
        for step, form in enumerate(forms):
            if form != forms[0]:
                raise af.OptionError(
                    f"{self._name} was {forms[0]} in step 0, but {form} in step {step} (structure, dtypes, shapes)",
                    remedy="Return arrays of the same structure, dtypes and shapes at each step.",
                )
        stacked = [np.stack(column) for column in zip(*(xs for _, xs in self._steps), strict=True)]
        if isinstance(layout, tuple):
            return dict(zip(layout, stacked, strict=True))
        if isinstance(layout, type):
            return stacked[0] if stacked else None
        return layout.unflatten(stacked)
