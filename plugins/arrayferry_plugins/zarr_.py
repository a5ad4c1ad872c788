"""Zarr: arrays in stores, which are read once when they are converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arrayferry import Blocks, Slices, Source, UnsupportedDtypeError, even_lengths, hookimpl

if TYPE_CHECKING:
    from arrayferry.typing import Memory

__all__ = ["ZarrSource", "arrayferry_sources"]


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


def _refuse_text(x: Any) -> None:
    if x.dtype.kind in "OSTU" or x.dtype.hasobject:
        raise UnsupportedDtypeError(
            f"a Zarr array of dtype {x.dtype} cannot be converted: it holds text or objects",
            remedy="Read it with x[...], which gives a NumPy array.",
            dtype=str(x.dtype),
        )


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the source of this module."""
    return [ZarrSource()]
