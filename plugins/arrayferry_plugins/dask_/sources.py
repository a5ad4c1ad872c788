"""Collections of Dask that are not arrays: errors name the method to call first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Blocks, ConversionError, Source

_BAG = (
    "Convert x.to_delayed() instead, which computes to its contents.",
    "Make an array from x.to_delayed() with dask.array.from_delayed, which needs the shapes and dtypes.",
)
_REMEDIES = {
    "Bag": _BAG,
    "Item": _BAG,
    "Scalar": (
        "Convert x.to_delayed() instead.",
        "Convert x.to_delayed() first: it is one number.",
    ),
}
"""Remedies for a conversion, and for a stream."""
_FRAME = (
    "Convert x.to_dask_array(lengths=True) instead.",
    "Pass x.to_dask_array(lengths=True) instead, which computes the lengths of the partitions.",
)


class _Collection(Source):
    package = install = "dask"

    def to_numpy(self, x: Any) -> Any:
        name = type(x).__name__
        remedy, _ = _REMEDIES.get(name, _FRAME)
        raise ConversionError(f"a Dask {name} cannot be converted", remedy=remedy)

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        name = type(xs[0]).__name__
        _, remedy = _REMEDIES.get(name, _FRAME)
        raise ConversionError(f"a Dask {name} cannot be streamed", remedy=remedy)


class DataFrameSource(_Collection):
    """Dask's `DataFrame`, `Series`, `Index` and `Scalar`: errors name the method to call first."""

    name = "dask.dataframe"
    array_types: tuple[str, ...] = (
        "dask.dataframe.DataFrame",
        "dask.dataframe.Series",
        "dask.dataframe.Index",
        "dask.dataframe.dask_expr._collection.Scalar",
    )


class BagSource(_Collection):
    """Dask's `Bag` and `Item`: errors name the method to call first."""

    name = "dask.bag"
    array_types: tuple[str, ...] = ("dask.bag.Bag", "dask.bag.Item")
