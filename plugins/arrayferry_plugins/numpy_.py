"""NumPy: host memory, and the general path between any two other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry import Backend, hookimpl

if TYPE_CHECKING:
    from arrayferry.typing import Memory

__all__ = ["NumpyBackend", "arrayferry_backends"]


class NumpyBackend(Backend):
    """`numpy.ndarray`, its subclasses, and NumPy's numeric scalars."""

    name = "numpy"
    package = "numpy"
    aliases: tuple[str, ...] = ("np",)
    array_types: tuple[str, ...] = ("numpy.ndarray",)
    item_types: tuple[str, ...] = ("numpy.ndarray", "numpy.int64", "numpy.int32")
    memory: Memory = "writable"
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True

    def to_numpy(self, x: Any) -> Any:
        import numpy as np

        from arrayferry import ConversionError

        mask = getattr(x, "mask", None) if type(x) is not np.ndarray else None
        if isinstance(mask, (np.ndarray, np.bool_)) and np.any(mask):
            raise ConversionError(
                "a masked array cannot be converted: its mask would be lost",
                remedy="Call x.filled(value) first, or convert x.data and x.mask.",
            )
        if type(x) is not np.ndarray:
            _refuse_units(x)
        return np.asarray(x)

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        return x

    def copy(self, x: Any) -> Any:
        return x.copy()

    def address(self, x: Any) -> int:
        return x.__array_interface__["data"][0] if x.size else 0

    def dtypes(self) -> None:
        return None


def _refuse_units(x: Any) -> None:
    """Raise for subclasses with units, such as those of astropy and unyt."""
    from arrayferry import ConversionError

    for name in ("unit", "units"):
        if getattr(x, name, None) is not None:
            raise ConversionError(
                f"a {type(x).__qualname__} with units cannot be converted: its units would be lost",
                remedy="Convert it to the units that you want first, then pass x.value.",
            )


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [NumpyBackend()]
