"""Shared by the plugins with sources, such as arrays in files and stores, which are read whole or in stored parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from arrayferry import ConversionError, Source, UnsupportedDtypeError
from arrayferry.typing import Memory


def refused(what: str, first: str, dtype: Any = None, why: str = "") -> ConversionError:
    """Return the error for what cannot be converted, perhaps since NumPy lacks its dtype, unless a call comes first."""
    reason, remedy = f"{what} cannot be converted{why}", f"Call {first} first."
    if dtype is None:
        return ConversionError(reason, remedy=remedy)
    return UnsupportedDtypeError(reason, remedy=remedy, dtype=str(dtype))


class StoredSource(Source):
    """Arrays that are read once when they are converted.

    Attributes:
        what: the word for an array in errors.
        remedy: how to read an array of text or objects.
        unportable: why a stream of them cannot be pickled, "" if it can.
    """

    what: str
    remedy: str
    unportable: str = ""
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False

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
