"""How arrays are split into blocks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from arrayferry import ConversionError, even_lengths

chosen_chunks: ContextVar[Any] = ContextVar("chunks", default=None)
"""The chunks that `to_dask` was called with, for the arrays that it makes."""


def split(x: Any) -> Any:
    """Make a Dask array of an array, in the blocks that `to_dask` was asked for."""
    import dask.array as da
    from dask.array.core import normalize_chunks

    chunks = chosen_chunks.get()
    whole: tuple[Any, ...] = tuple((length,) for length in x.shape)
    if chunks is not None and whole:
        try:
            whole = normalize_chunks(_by_axis(chunks), x.shape, dtype=x.dtype)
        except Exception as error:
            raise _misfit(chunks, x, error) from error
    elif x.size and whole:
        whole = (tuple(even_lengths(x.shape, x.dtype.itemsize, 0)), *whole[1:])
    own = type(x).__module__.startswith("numpy")
    return da.from_array(x, chunks=whole, name=False, asarray=None if own else False)


def rechunked(x: Any, chunks: Any) -> Any:
    """Return a Dask array with other chunks."""
    if not x.ndim:
        return x
    try:
        return x.rechunk(_by_axis(chunks))
    except Exception as error:
        raise _misfit(chunks, x, error) from error


def _by_axis(chunks: Any) -> Any:
    """Return chunks as Dask takes them: a whole number is meant for the first axis."""
    return {0: chunks} if isinstance(chunks, int) else chunks


def _misfit(chunks: Any, x: Any, error: Exception) -> ConversionError:
    unknown = any(length != length for length in x.shape)
    return ConversionError(
        f"chunks={chunks!r:.80} do not fit an array of shape {x.shape} and dtype {x.dtype} "
        f"({str(error).partition(chr(10))[0]})",
        remedy="Call x.compute_chunk_sizes() first, which computes the array."
        if unknown
        else "Pass a whole number for the first axis, or what x.rechunk(chunks) of Dask takes.",
    )
