"""Sources for objects of Dask that are not arrays. They cannot be converted, and errors say what to call first."""

from __future__ import annotations

from typing import NoReturn

from arrayferry import Source
from arrayferry.typing import AnyArray
from arrayferry_plugins._sources import refused

_FROM_DELAYED = (
    "make a Dask array of it with dask.array.from_delayed, which needs the shape and dtype"
)
_REMEDIES = {
    "Bag": "Convert the list x.compute(), or make Dask arrays of x.to_delayed() with dask.array.from_delayed.",
    "Item": "Convert x.compute() instead.",
    "Scalar": "Convert x.compute() instead.",
    "Delayed": f"Convert x.compute() instead, or {_FROM_DELAYED}.",
    "Future": f"Convert x.result() instead, or {_FROM_DELAYED}.",
}
_FRAME = "Pass x.to_dask_array().compute_chunk_sizes() instead, which computes the lengths of the partitions."


class NoArray(Source):
    """A source for classes of Dask whose objects are not arrays. Its errors say what to call first.

    Args:
        name: the name of the source.
        *array_types: the dotted paths of the classes.
    """

    package = install = "dask"

    def __init__(self, name: str, *array_types: str) -> None:
        self.name = name
        self.array_types = array_types

    def to_numpy(self, x: AnyArray) -> NoReturn:
        cls_name = next((cls.__name__ for cls in type(x).__mro__ if cls.__name__ in _REMEDIES), "")
        raise refused(f"a Dask {type(x).__name__}", remedy=_REMEDIES.get(cls_name, _FRAME))


SOURCES: list[Source] = [
    NoArray(
        "dask.dataframe",
        "dask.dataframe.DataFrame",
        "dask.dataframe.Series",
        "dask.dataframe.Index",
        "dask.dataframe.dask_expr._collection.Scalar",
    ),
    NoArray("dask.bag", "dask.bag.Bag", "dask.bag.Item"),
    NoArray("dask.delayed", "dask.delayed.Delayed", "distributed.client.Future"),
]
