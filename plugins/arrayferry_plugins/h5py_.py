"""h5py: datasets in files, which are read once, when they are converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Source, hookimpl
from arrayferry.typing import AnyArray

from ._sources import GroupSource, StoredSource, refused


class H5pySource(StoredSource):
    """`h5py.Dataset`, and its views by `astype` and `fields`."""

    name = "h5py"
    package = install = "h5py"
    array_types: tuple[str, ...] = ("h5py.Dataset", "h5py._hl.dataset.AbstractView")
    what = "a dataset"
    remedy = "Read it with x[()], or with x.asstr()[()] if it is text."
    unportable: str = (
        "a stream of h5py datasets cannot be pickled, since their file is open in this process only. Open the "
        "file and make the stream in the process that reads the stream, or start that process by fork"
    )

    def device_of(self, x: AnyArray) -> str:
        # h5py's own errors for a closed file do not say what to do
        if not getattr(x, "_dset", x):
            noun = "a dataset of a closed file"
            raise refused(noun, remedy="Convert it while the file is open.")
        return "cpu"

    def refuse(self, x: AnyArray) -> None:
        self.device_of(x)
        if x.shape is None:
            noun, remedy = "a dataset that is h5py.Empty", "First check whether x.shape is None."
            raise refused(noun, why=": it has no values", remedy=remedy)
        super().refuse(x)

    def stored(self, x: Any) -> Sequence[int] | None:
        return getattr(x, "_dset", x).chunks  # type: ignore[no-any-return]


_SOURCE = H5pySource()


class H5pyGroupSource(GroupSource):
    """`h5py.Group` and `h5py.File`."""

    name = "h5py.group"
    package = install = "h5py"
    array_types: tuple[str, ...] = ("h5py.Group",)
    what = "an h5py"
    inside = (
        "the datasets in it, such as group['name'], or {name: x for name, x in group.items() "
        "if isinstance(x, h5py.Dataset)}"
    )


def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return [_SOURCE, H5pyGroupSource()]


@hookimpl(optionalhook=True)
def arrayferry_blocks() -> list[Any]:
    """Return the `Streaming` of h5py datasets."""
    from ._streaming import StoredStreaming

    return [StoredStreaming(_SOURCE)]
