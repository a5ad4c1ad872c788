"""NumPy: arrays in host memory. The general path between two other libraries goes through NumPy."""

from __future__ import annotations

from typing import Any

from arrayferry import Backend
from arrayferry.extending import refuse_more_than_values
from arrayferry.typing import AnyArray, Device


class NumpyBackend(Backend):
    """`numpy.ndarray`, its subclasses, and NumPy's numeric scalars."""

    name = "numpy"
    package = install = "numpy"
    aliases: tuple[str, ...] = ("np",)
    array_types: tuple[str, ...] = ("numpy.ndarray",)
    item_types: tuple[str, ...] = ("numpy.ndarray", "numpy.int64", "numpy.int32")
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True

    def to_numpy(self, x: AnyArray) -> Any:
        import numpy as np

        if type(x) is not np.ndarray:
            refuse_more_than_values(x)
        return np.asarray(x)

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        return x

    def copy(self, x: AnyArray) -> Any:
        return x.copy()

    def address(self, x: AnyArray) -> int:
        return x.__array_interface__["data"][0] if x.size else 0

    def dtypes(self) -> None:
        return None


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [NumpyBackend()]
