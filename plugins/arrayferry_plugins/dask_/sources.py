"""Values of Dask that are not arrays: errors name the method to call first."""

from __future__ import annotations

from typing import Any, NoReturn

from arrayferry import ConversionError, Source

_FROM_DELAYED = (
    "make a Dask array of it with dask.array.from_delayed, which needs the shape and dtype"
)
_REMEDIES = {
    "Bag": "Convert x.compute(), a list, or make Dask arrays of x.to_delayed() with dask.array.from_delayed.",
    "Item": "Convert x.compute() instead.",
    "Scalar": "Convert x.compute() instead.",
    "Delayed": f"Convert x.compute() instead, or {_FROM_DELAYED}.",
    "Future": f"Convert x.result() instead, or {_FROM_DELAYED}.",
}
_FRAME = "Pass x.to_dask_array().compute_chunk_sizes() instead, which computes the lengths of the partitions."


class _NoArray(Source):
    package = install = "dask"

    def to_numpy(self, x: Any) -> NoReturn:
        name = next((cls.__name__ for cls in type(x).__mro__ if cls.__name__ in _REMEDIES), "")
        raise ConversionError(
            f"a Dask {type(x).__name__} cannot be converted", remedy=_REMEDIES.get(name, _FRAME)
        )


class DataFrameSource(_NoArray):
    """Dask's `DataFrame`, `Series`, `Index` and `Scalar`: errors name the method to call first."""

    name = "dask.dataframe"
    array_types: tuple[str, ...] = (
        "dask.dataframe.DataFrame",
        "dask.dataframe.Series",
        "dask.dataframe.Index",
        "dask.dataframe.dask_expr._collection.Scalar",
    )


class BagSource(_NoArray):
    """Dask's `Bag` and `Item`: errors name the method to call first."""

    name = "dask.bag"
    array_types: tuple[str, ...] = ("dask.bag.Bag", "dask.bag.Item")


class DelayedSource(_NoArray):
    """Dask's `Delayed`, and the `Future` of a cluster: errors name the method to call first."""

    name = "dask.delayed"
    array_types: tuple[str, ...] = ("dask.delayed.Delayed", "distributed.client.Future")
