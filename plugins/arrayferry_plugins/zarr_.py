"""Zarr: arrays in stores, which are read once when they are converted."""

from __future__ import annotations

from typing import Any

from arrayferry import Source, UnsupportedDtypeError, hookimpl

__all__ = ["ZarrSource", "arrayferry_sources"]


class ZarrSource(Source):
    """`zarr.Array`."""

    name = "zarr"
    package = "zarr"
    array_types = ("zarr.Array",)
    memory = "lazy"
    to_numpy_shares = False

    def to_numpy(self, x: Any) -> Any:
        import numpy as np

        if x.dtype.kind in "OSTU" or x.dtype.hasobject:
            raise UnsupportedDtypeError(
                f"a Zarr array of dtype {x.dtype} cannot be converted: it holds text or objects",
                remedy="Read it with x[...], which gives a NumPy array.",
                dtype=str(x.dtype),
            )
        return np.asarray(x[...])


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [ZarrSource()]
