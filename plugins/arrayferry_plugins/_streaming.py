"""How streams read arrays in files and stores, and how they read containers as trees of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arrayferry import Container
from arrayferry._utilities.text import type_name
from arrayferry.typing import AnyArray
from arrayferry_streams import Slices, Streaming, even_lengths

from ._sources import StoredSource


class StoredStreaming(Streaming):
    """Reads arrays of a file or store in blocks of whole chunks.

    Args:
        source: the source of the arrays.
    """

    def __init__(self, source: StoredSource) -> None:
        self.name = source.name
        self._source = source

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Slices:
        block_lengths = []
        for x in xs:
            self._source.refuse(x)
            chunk_shape = self._source.stored(x)
            chunk_length = chunk_shape[axis] if chunk_shape else 1
            block_lengths.append(
                even_lengths(x.shape, x.dtype.itemsize, axis, multiple=chunk_length, wanted=block)
            )
        return _StoredSlices(self._source, xs, axis, block_lengths)


class _StoredSlices(Slices):
    """Blocks of arrays of a file or store. If the file is closed, `read` raises an error with a remedy."""

    def __init__(
        self, source: StoredSource, xs: Sequence[Any], axis: int, lengths: AnyArray
    ) -> None:
        super().__init__(xs, axis, lengths)
        self._source = source

    def read(self, array: int, block: int) -> Any:
        self._source.device_of(self._xs[array])  # raises an error with a remedy for a closed file
        return super().read(array, block)

    def portable_client(self) -> Any:
        if self._source.unportable:
            raise TypeError(self._source.unportable)


class ContainerStreaming(Streaming):
    """Streams a tree of arrays in place of a value of a type that a container handles.

    Args:
        container: the class of the container.
        streamed: a function that returns the tree for a value.
    """

    def __init__(self, container: type[Container], streamed: Callable[[Any], Any]) -> None:
        self.name = type_name(container)
        self.streamed = streamed  # type: ignore[method-assign,assignment]
