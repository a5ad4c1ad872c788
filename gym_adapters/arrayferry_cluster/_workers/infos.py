"""`Infos`: collects the infos that the user requested, for a group of ordinary environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import arrayferry as af

TO_NUMPY = af.converter("numpy", copy=False, unsupported="keep")


def check_common_dtype(arrays: Sequence[Any]) -> None:
    """Check that the common dtype of arrays of numbers, to which NumPy converts them, can hold their integers.

    Raises:
        ValueError: NumPy would round an integer, such as a large one of uint64 beside another of int64.
    """
    dtypes = {x.dtype for x in arrays}
    if len(dtypes) == 1:
        return
    common_dtype = np.result_type(*dtypes)
    for x in arrays:
        # Python compares integers with floats exactly
        if x.dtype.kind in "iu" and x.tolist() != x.astype(common_dtype).tolist():
            raise ValueError(
                f"{' and '.join(sorted(map(str, dtypes)))} become {common_dtype}, which rounds an integer"
            )


class Infos:
    """Collects infos: for each name, an array, and a mask of the steps and environments that provided the info.

    Args:
        names: the names of the infos.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._steps: list[list[dict[str, Any]]] = []

    def write(self, infos: Sequence[dict[str, Any]]) -> None:
        """Copy the infos of all environments after a step."""
        names = self._names
        self._steps.append(
            [{x: np.array(TO_NUMPY([info[x]])[0]) for x in names if x in info} for info in infos]
        )

    def tree(self) -> Any:
        """Return a dict of arrays (time, environment, ...) and masks, or None if no infos were requested.

        An info that no environment provided is None in the dict.

        Raises:
            arrayferry.OptionError: an info is neither a number nor an array of numbers, its shape changes, or its dtypes
                have no common dtype that can hold its integers.
        """
        infos_by_name: dict[str, Any] = {}
        for name in self._names:
            is_provided = np.array([[name in info for info in infos] for infos in self._steps])
            values = [info[name] for infos in self._steps for info in infos if name in info]
            shapes, dtype_kinds = {x.shape for x in values}, {x.dtype.kind for x in values}
            if len(shapes) > 1 or not dtype_kinds <= set("biufc"):
                raise af.OptionError(
                    f"infos={self._names!r}: the info {name!r} is not always a number or an array of one shape",
                    remedy="Leave that name out, or return numbers or arrays of numbers, of one shape, at each step.",
                )
            infos_by_name[name] = None
            if values:
                try:
                    check_common_dtype(values)
                except ValueError as error:
                    raise af.OptionError(
                        f"infos={self._names!r}: the dtypes of the info {name!r} change: {error}",
                        remedy="Return numbers of one dtype at each step, such as np.uint64.",
                    ) from error
                stacked = np.stack(values)
                infos_by_name[name] = np.zeros(is_provided.shape + stacked.shape[1:], stacked.dtype)
                infos_by_name[name][is_provided] = stacked
            infos_by_name[f"_{name}"] = is_provided
        return infos_by_name or None
