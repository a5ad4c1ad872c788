"""Zarr: arrays in stores, which are read once when they are converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arrayferry import (
    Blocks,
    ConversionError,
    Slices,
    Source,
    UnsupportedDtypeError,
    even_lengths,
    hookimpl,
)

if TYPE_CHECKING:
    from arrayferry.typing import Memory

__all__ = ["GroupSource", "ZarrSource", "arrayferry_sources"]


class ZarrSource(Source):
    """`zarr.Array`."""

    name = "zarr"
    package = "zarr"
    array_types: tuple[str, ...] = ("zarr.Array",)
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False

    def to_numpy(self, x: Any) -> Any:
        import numpy as np

        _refuse_text(x)
        return np.asarray(x[...])

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        lengths = []
        for x in xs:
            _refuse_text(x)
            stored = getattr(x, "shards", None) or x.chunks  # what is read as a whole
            lengths.append(
                even_lengths(x.shape, x.dtype.itemsize, axis, multiple=stored[axis], wanted=block)
            )
        return Slices(xs, axis, lengths)


class GroupSource(Source):
    """`zarr.Group`: what to convert instead."""

    name = "zarr.group"
    package = "zarr"
    array_types: tuple[str, ...] = ("zarr.Group",)

    def to_numpy(self, x: Any) -> Any:
        raise _no_array("converted", "Convert")

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        raise _no_array("streamed", "Pass")


def _no_array(what: str, verb: str) -> ConversionError:
    return ConversionError(
        f"a Zarr Group cannot be {what}: it is no array, but holds some",
        remedy=f"{verb} the arrays in it, as group['name'], or as dict(group.arrays()).",
    )


def _refuse_text(x: Any) -> None:
    if x.dtype.kind in "OSTU" or x.dtype.hasobject:
        raise UnsupportedDtypeError(
            f"a Zarr array of dtype {x.dtype} cannot be converted: it holds text or objects",
            remedy="Read it with x[...], which gives a NumPy array.",
            dtype=str(x.dtype),
        )


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [ZarrSource(), GroupSource()]
