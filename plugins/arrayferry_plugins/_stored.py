"""Shared by the plugins of libraries that keep arrays in files and stores, which are read whole or in stored parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from arrayferry import Blocks, ConversionError, Slices, Source, UnsupportedDtypeError, even_lengths

if TYPE_CHECKING:
    from arrayferry.typing import Memory


class StoredSource(Source):
    """Arrays that are read once when they are converted.

    Attributes:
        what: the word for an array in errors.
        remedy: how to read an array of text or objects.
    """

    what: str
    remedy: str
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False
    slices: type[Slices] = Slices

    def refuse(self, x: Any) -> None:
        """Raise an error for an array that cannot be converted. The default refuses text and objects."""
        if x.dtype.kind in "OSTU" or x.dtype.hasobject:
            raise UnsupportedDtypeError(
                f"{self.what} of dtype {x.dtype} cannot be converted: it holds text or objects",
                remedy=self.remedy,
                dtype=str(x.dtype),
            )

    @abstractmethod
    def stored(self, x: Any) -> Sequence[int] | None:
        """Return the shape of the parts that are read as a whole, None if any part can be read."""

    def to_numpy(self, x: Any) -> Any:
        import numpy as np

        self.refuse(x)
        return np.asarray(x[()])

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        lengths = []
        for x in xs:
            self.refuse(x)
            stored = self.stored(x)
            multiple = stored[axis] if stored else 1
            lengths.append(
                even_lengths(x.shape, x.dtype.itemsize, axis, multiple=multiple, wanted=block)
            )
        return self.slices(xs, axis, lengths)


class GroupSource(Source):
    """Groups of arrays, which are not arrays themselves: errors name the arrays to convert instead.

    Attributes:
        what: the words for the library, before the name of the class, in errors.
        inside: the arrays in a group, and how to get them.
    """

    what: str
    inside: str

    def to_numpy(self, x: Any) -> NoReturn:
        raise ConversionError(
            f"{self.what} {type(x).__name__} cannot be converted: it is not an array, but holds some",
            remedy=f"Pass {self.inside}.",
        )
