"""Collections of Dask that are not arrays: what to call first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import (
    Blocks,
    ConversionError,
    Source,
)

__all__ = ["BagSource", "DataFrameSource"]


class DataFrameSource(Source):
    """Dask's `DataFrame`, `Series`, `Index` and `Scalar`: what to call first."""

    name = "dask.dataframe"
    package = "dask"
    array_types: tuple[str, ...] = (
        "dask.dataframe.DataFrame",
        "dask.dataframe.Series",
        "dask.dataframe.Index",
        "dask.dataframe.dask_expr._collection.Scalar",
    )

    def to_numpy(self, x: Any) -> Any:
        scalar = type(x).__name__ == "Scalar"
        way = "x.to_delayed()" if scalar else _AS_ARRAY
        raise ConversionError(
            f"a Dask {type(x).__name__} cannot be converted", remedy=f"Convert {way} instead."
        )

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        what = type(xs[0]).__name__
        remedy = f"Pass {_AS_ARRAY} instead, which computes the lengths of the partitions."
        if what == "Scalar":
            remedy = "Convert x.to_delayed() first: it is one number."
        raise ConversionError(f"a Dask {what} cannot be streamed", remedy=remedy)


_AS_ARRAY = "x.to_dask_array(lengths=True)"


class BagSource(Source):
    """Dask's `Bag` and `Item`: what to call first."""

    name = "dask.bag"
    package = "dask"
    array_types: tuple[str, ...] = ("dask.bag.Bag", "dask.bag.Item")

    def to_numpy(self, x: Any) -> Any:
        raise ConversionError(
            f"a Dask {type(x).__name__} cannot be converted",
            remedy="Convert x.to_delayed() instead, which computes to its contents.",
        )

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        raise ConversionError(
            f"a Dask {type(xs[0]).__name__} cannot be streamed",
            remedy="Make an array from x.to_delayed() with dask.array.from_delayed, which needs the shapes and dtypes.",
        )
