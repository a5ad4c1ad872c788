"""Zarr: arrays in stores, which are read once, when they are converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Source, hookimpl
from arrayferry.typing import AnyArray

from ._sources import GroupSource, StoredSource


class ZarrSource(StoredSource):
    """`zarr.Array`."""

    name = "zarr"
    package = install = "zarr"
    array_types: tuple[str, ...] = ("zarr.Array",)
    what = "a Zarr array"
    remedy = "Read it with x[...], which returns a NumPy array."

    def stored(self, x: AnyArray) -> Sequence[int]:
        return getattr(x, "shards", None) or x.chunks  # type: ignore[no-any-return]


_SOURCE = ZarrSource()


class ZarrGroupSource(GroupSource):
    """`zarr.Group`."""

    name = "zarr.group"
    package = install = "zarr"
    array_types: tuple[str, ...] = ("zarr.Group",)
    what = "a Zarr"
    inside = "the arrays in it, such as group['name'], or dict(group.arrays())"


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [_SOURCE, ZarrGroupSource()]


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return the `Streaming` of Zarr arrays."""
    from ._streaming import StoredStreaming

    return [StoredStreaming(_SOURCE)]
