"""How arrays are split into blocks of Dask arrays, and how blocks of other libraries are made and joined."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from arrayferry import (
    Conversion,
    ConversionError,
    backend_of,
    convert,
    fit_dtype,
    namespace_of,
    registry,
)
from arrayferry.extending import resolve_type
from arrayferry.typing import AnyArray

CHUNK_BYTES = 64 * 1024 * 1024
"""The maximum size in bytes of a block, apart from blocks of one row, if the user requested no chunks."""

chosen_chunks: ContextVar[Any] = ContextVar("chunks", default=None)
"""The argument `chunks` of the current call of `to_dask`, or None outside of such a call."""


def split(x: AnyArray) -> Any:
    """Make a Dask array from an array, with the chunks in `chosen_chunks`, or else with blocks of about 64 MiB."""
    import dask.array as da
    from dask.array.core import normalize_chunks

    chunks = chosen_chunks.get()
    array_chunks: tuple[Any, ...] = tuple((length,) for length in x.shape)
    if chunks is not None and array_chunks:
        try:
            array_chunks = normalize_chunks(_by_axis(chunks), x.shape, dtype=x.dtype)
        except Exception as error:
            raise _misfit(chunks, x, error) from error
    elif x.size and array_chunks:
        num_rows = max(1, CHUNK_BYTES * x.shape[0] // max(1, x.dtype.itemsize * x.size))
        array_chunks = (num_rows, *array_chunks[1:])
    is_numpy = type(x).__module__.startswith("numpy")
    return da.from_array(x, chunks=array_chunks, name=False, asarray=None if is_numpy else False)


def rechunked(x: AnyArray, chunks: Any) -> Any:
    """Return a Dask array with the chunks that the user requested."""
    if not x.ndim:
        return x
    try:
        return x.rechunk(_by_axis(chunks))
    except Exception as error:
        raise _misfit(chunks, x, error) from error


def _by_axis(chunks: Any) -> Any:
    """Return `chunks` for Dask. An integer applies to the first axis in `to_dask`, but to all axes in Dask."""
    return {0: chunks} if isinstance(chunks, int) else chunks


def _misfit(chunks: Any, x: AnyArray, error: Exception) -> ConversionError:
    noun, cause = f"an array of shape {x.shape} and dtype {x.dtype}", str(error).partition("\n")[0]
    remedy = "Pass a whole number for the first axis, or what x.rechunk(chunks) of Dask accepts."
    if any(length != length for length in x.shape):
        remedy = "Call x.compute_chunk_sizes() first, which computes the array."
    return ConversionError(f"chunks={chunks!r:.80} do not fit {noun} ({cause})", remedy=remedy)


def with_blocks(x: AnyArray, conversion: Conversion) -> Any:
    """Return a Dask array that converts the blocks of `x` when they are computed."""
    from dask.base import tokenize

    meta, dtype = _empty(x, conversion)
    convert_block = partial(_converted, conversion)
    name = f"to-{conversion.target.name}-{tokenize(x, conversion, str(dtype))}"
    return x.map_blocks(convert_block, name=name, dtype=dtype, meta=meta)


def _empty(x: AnyArray, conversion: Conversion) -> tuple[Any, Any]:
    """Return an empty array of the type of the converted blocks of a Dask array, and its dtype.

    If that dtype is not one of NumPy, as for PyTorch, return a NumPy array, since Dask needs a dtype of NumPy.
    """
    import numpy as np

    meta = x._meta
    if not meta.ndim:  # the meta of an array without axes has one element, whose value is unknown
        meta = meta.reshape(1)[:0]
    if meta.dtype == object:  # raise the error that an array with elements would raise
        target = conversion.target
        try:
            fit_dtype(meta, target, conversion.options.narrowing)
        except ConversionError as error:
            raise error.locate(source="dask", target=target.name) from None
    empty_block = _converted(conversion, meta)
    if not isinstance(getattr(empty_block, "dtype", None), np.dtype):
        empty_block = convert(empty_block, "numpy")
    return empty_block, empty_block.dtype


def _converted(conversion: Conversion, block: Any) -> Any:
    """Convert a block, and register its type with Dask, since this process may join such blocks later."""
    converted = conversion(block)
    _join(type(converted))
    return converted


def know_blocks() -> None:
    """Register with Dask the functions that join blocks, for the arrays of all imported libraries."""
    for backend in registry.backends().values():
        if backend.memory != "lazy":
            for cls in filter(None, map(resolve_type, backend.array_types)):
                _join(cls)
    _know_dtypes()


def _join(cls: type) -> None:
    """Register with Dask the functions that join blocks of a type, unless Dask can join them already."""
    import numpy as np
    from dask.array.dispatch import concatenate_lookup

    if concatenate_lookup.dispatch(cls) is np.concatenate and not hasattr(
        cls, "__array_function__"
    ):
        _register(cls)


def _register(cls: type | None) -> None:
    from dask.array import dispatch

    dispatch.concatenate_lookup.register(cls, _concatenate)
    if hasattr(dispatch, "take_lookup"):  # older versions of Dask have no `take_lookup`
        dispatch.take_lookup.register(cls, _take)
    _know_dtypes()


def _know_dtypes() -> None:
    """Let Dask send PyTorch tensors whose dtype NumPy lacks, such as bfloat16, if `distributed` is imported."""
    cls = resolve_type("torch.Tensor")
    if cls is None or "distributed" not in sys.modules:
        return
    from distributed.protocol import dask_serialize
    from distributed.protocol.torch import serialize_torch_Tensor

    def serialize(x: AnyArray) -> Any:
        try:
            return serialize_torch_Tensor(x)
        except (TypeError, RuntimeError):
            raise NotImplementedError from None  # after this error, Dask pickles the tensor

    dask_serialize.register(cls, serialize)


def copied(block: Any) -> Any:
    """Return a copy of a block of any library."""
    return backend_of(block).copy(block)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    return namespace_of(arrays[0]).concat(list(arrays), axis=axis)


def _take(x: AnyArray, indices: AnyArray, axis: int = 0) -> Any:
    return namespace_of(x).take(x, convert(indices, like=x), axis=axis)


def _know_lazily() -> None:
    """Let Dask join PyTorch tensors and JAX arrays that a user's function for `x.map_blocks` returns."""
    dispatch_module = sys.modules.get("dask.array.dispatch")
    lookup: Any = getattr(dispatch_module, "concatenate_lookup", None)
    if lookup is None:
        return
    for path in ("torch.Tensor", "jax.Array"):

        def register(path: str = path) -> None:
            _register(resolve_type(path))

        lookup.register_lazy(path.partition(".")[0], register)


_know_lazily()
