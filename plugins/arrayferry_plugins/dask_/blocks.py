"""Streams of Dask arrays: the chunks along an axis are computed one after another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from arrayferry import Blocks, ConversionError, Reader

from .clients import Clients
from .computing import futures_of, persisted
from .readers import ClusterReader, ThreadReader


class DaskBlocks(Blocks):
    """The chunks of Dask arrays along an axis. All arrays share one graph.

    Args:
        xs: the arrays.
        axis: the axis.
        client: computes them: a `distributed.Client`, or the address of a scheduler. None for the current
            client, or threads if there is none.
    """

    uses_client = True

    def __init__(self, xs: Sequence[Any], axis: int, client: Any) -> None:
        from dask.highlevelgraph import HighLevelGraph

        for x in xs:
            if any(size != size for size in x.chunks[axis]):
                raise ConversionError(
                    "a Dask array with chunks of unknown sizes cannot be read block by block",
                    remedy="Call x.compute_chunk_sizes() first.",
                )
        self._clients = Clients(xs, client)
        self._optimize = xs[0].__dask_optimize__
        self._graph = HighLevelGraph.merge(*(x.__dask_graph__() for x in xs))
        self._futures = futures_of(self._graph)
        self._persisted = persisted(self._graph)
        self._keys = [_along(x.__dask_keys__(), axis) for x in xs]
        self.lengths: Sequence[Sequence[int]] = [x.chunks[axis] for x in xs]

    def read(self, array: int, block: int) -> Any:
        with closing(self.open([[(array, block)]])) as reader:
            return reader.read(0)[0]

    def portable_client(self) -> Any:
        return self._clients.portable()

    def open(self, steps: Sequence[Any]) -> Reader:
        wanted = [[self._keys[array][block] for array, block in step] for step in steps]
        # optimizing may leave out what is persisted
        graph = {**self._persisted, **self._optimize(self._graph, wanted)}
        client, get = self._clients.find(self._futures)
        if client is None:
            return ThreadReader(graph, wanted, get)
        return ClusterReader(graph, wanted, client)


def _along(keys: Any, axis: int) -> list[Any]:
    """Return the keys of each block along an axis, nested as the chunks along the other axes are."""
    if axis == 0:
        return [[key] for key in keys]
    return [list(block) for block in zip(*(_along(inner, axis - 1) for inner in keys), strict=True)]
