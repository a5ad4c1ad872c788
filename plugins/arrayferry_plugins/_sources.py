"""Code that is shared by plugins with sources. Sources such as files and stores are read as a whole or by chunks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from arrayferry import ConversionError, Source, UnsupportedDtypeError
from arrayferry.extending import describe_error
from arrayferry.typing import AnyArray, Memory

if TYPE_CHECKING:
    import numpy as np


def refused(
    what: str, first: str = "", dtype: Any = None, why: str = "", *, remedy: str = ""
) -> ConversionError:
    """Return the error for an object that cannot be converted.

    Args:
        what: the words for the object, such as "a dataset".
        first: the call that makes an array of the object, for the remedy "First call ...", or "".
        dtype: the dtype of the object for an `UnsupportedDtypeError`, or None for a `ConversionError`.
        why: text to append to the reason.
        remedy: how to fix the problem, in place of `first`.
    """
    reason, remedy = f"{what} cannot be converted{why}", remedy or f"First call {first}."
    if dtype is None:
        return ConversionError(reason, remedy=remedy)
    return UnsupportedDtypeError(reason, remedy=remedy, dtype=str(dtype))


def read_only(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only view of an array whose memory other objects use too."""
    view = values.view()
    view.flags.writeable = False
    return view


class StoredSource(Source):
    """A source of arrays in files or stores, which are read once, when they are converted.

    Attributes:
        what: the words for an array in errors, such as "a dataset".
        remedy: how to read an array of text or objects.
        unportable: the reason why a stream of the arrays cannot be pickled, or "" if streams can be pickled.
    """

    what: str
    remedy: str
    unportable: str = ""
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False

    def refuse(self, x: AnyArray) -> None:
        """Raise an error if an array cannot be converted. By default, arrays of text or objects are refused."""
        if x.dtype.base.kind in "OSTU" or x.dtype.hasobject:
            noun, reason = f"{self.what} of dtype {x.dtype}", ": it contains text or objects"
            raise refused(noun, dtype=x.dtype, why=reason, remedy=self.remedy)

    @abstractmethod
    def stored(self, x: AnyArray) -> Sequence[int] | None:
        """Return the shape of the chunks in which the file or store has the array. A chunk is read as a whole.

        Return None if the array has no chunks, so that any slice of it can be read alone.
        """

    def to_numpy(self, x: AnyArray) -> Any:
        import numpy as np

        self.refuse(x)
        try:
            return np.asarray(x[()])
        except MemoryError:
            raise
        except Exception as error:  # libraries raise many types of errors, as for a damaged file
            raise ConversionError(
                f"{self.what} could not be read ({describe_error(error)})",
                remedy="Check whether its file or store is damaged or out of reach.",
            ) from error


class GroupSource(Source):
    """A source of groups of arrays, which cannot be converted. The error says how to convert the arrays in a group.

    Attributes:
        what: the words before the name of the class in errors, such as "a Zarr" in "a Zarr Group".
        inside: the words for the arrays in a group in remedies, with the expressions that return the arrays.
    """

    what: str
    inside: str

    def to_numpy(self, x: AnyArray) -> NoReturn:
        noun, reason = (
            f"{self.what} {type(x).__name__}",
            ": it contains arrays, and is not an array itself",
        )
        raise refused(noun, why=reason, remedy=f"Pass {self.inside}.")
