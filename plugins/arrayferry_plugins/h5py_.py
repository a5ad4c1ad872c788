"""h5py: datasets in files, which are read once when they are converted."""

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

__all__ = ["GroupSource", "H5pySource", "arrayferry_sources"]


class H5pySource(Source):
    """`h5py.Dataset`, and its views by `astype` and `fields`."""

    name = "h5py"
    package = "h5py"
    array_types: tuple[str, ...] = ("h5py.Dataset", "h5py._hl.dataset.AbstractView")
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False

    def device_of(self, x: Any) -> str:
        if not getattr(x, "_dset", x):  # asked before all else, for which the file must be open
            raise ConversionError(
                "a dataset of a closed file cannot be converted",
                remedy="Convert it while the file is open.",
            )
        return "cpu"

    def to_numpy(self, x: Any) -> Any:
        import numpy as np

        _refuse(x)
        return np.asarray(x[()])

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        lengths = []
        for x in xs:
            self.device_of(x)
            _refuse(x)
            stored = getattr(x, "_dset", x).chunks
            multiple = stored[axis] if stored else 1
            lengths.append(
                even_lengths(x.shape, x.dtype.itemsize, axis, multiple=multiple, wanted=block)
            )
        return _Datasets(xs, axis, lengths)


class _Datasets(Slices):
    """Parts of datasets. They belong to a file that this process has opened."""

    def portable_client(self) -> Any:
        raise TypeError(
            "a stream of h5py datasets cannot be pickled, since their file is open in this process only. Open the "
            "file and make the stream in the process that uses it, or fork that process"
        )


class GroupSource(Source):
    """`h5py.Group` and `h5py.File`: what to convert instead."""

    name = "h5py.group"
    package = "h5py"
    array_types: tuple[str, ...] = ("h5py.Group",)

    def to_numpy(self, x: Any) -> Any:
        raise _no_array(x, "converted", "Convert")

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        raise _no_array(xs[0], "streamed", "Pass")


def _no_array(group: Any, what: str, verb: str) -> ConversionError:
    return ConversionError(
        f"an h5py {type(group).__name__} cannot be {what}: it is no array, but holds some",
        remedy=f"{verb} the datasets in it, as group['name'], or as {{name: x for name, x in group.items() "
        "if isinstance(x, h5py.Dataset)}.",
    )


def _refuse(x: Any) -> None:
    if x.shape is None:
        raise ConversionError(
            "a dataset that is h5py.Empty cannot be converted: it has no values",
            remedy="Test for x.shape is None first.",
        )
    if x.dtype.kind in "OSTU" or x.dtype.hasobject:
        raise UnsupportedDtypeError(
            f"a dataset of dtype {x.dtype} cannot be converted: it holds text or objects",
            remedy="Read it with x[()], or with x.asstr()[()] if it is text.",
            dtype=str(x.dtype),
        )


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [H5pySource(), GroupSource()]
