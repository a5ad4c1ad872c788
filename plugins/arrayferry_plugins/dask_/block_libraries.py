"""Blocks of other libraries in Dask arrays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from arrayferry import Conversion, ConversionError, backend_of, convert, fit_dtype, namespace_of


def with_blocks(x: Any, conversion: Conversion) -> Any:
    """Convert the blocks of a Dask array when they are computed."""
    from dask.base import tokenize

    meta, dtype = _empty(x, conversion)
    to_blocks = partial(_converted, conversion)
    name = f"to-{conversion.target.name}-{tokenize(x, conversion, str(dtype))}"
    return x.map_blocks(to_blocks, name=name, dtype=dtype, meta=meta)


def _empty(x: Any, conversion: Conversion) -> tuple[Any, Any]:
    """Return an empty array like the blocks that a conversion makes, and its dtype.

    Dask works with dtypes of NumPy only. If an array of another library has a dtype of its own, a NumPy array
    stands for it.
    """
    import numpy as np

    meta = x._meta
    if not meta.ndim:  # its one value is not known
        meta = meta.reshape(1)[:0]
    if meta.dtype == object:  # outside of Dask, such an array is searched for arrays
        target = conversion.target
        try:
            fit_dtype(meta, target, conversion.options.narrowing)
        except ConversionError as error:
            raise error.locate(source="dask", target=target.name) from None
    made = _converted(conversion, meta)
    if not isinstance(getattr(made, "dtype", None), np.dtype):
        made = convert(made, "numpy")
    return made, made.dtype


def _converted(conversion: Conversion, block: Any) -> Any:
    """Convert a block, in the process where it is computed."""
    made = conversion(block)
    _join(type(made))
    return made


def _join(cls: type) -> None:
    """Register a function that concatenates arrays of a type, unless Dask has one."""
    import numpy as np
    from dask.array.dispatch import concatenate_lookup

    if concatenate_lookup.dispatch(cls) is np.concatenate and not issubclass(cls, np.ndarray):
        concatenate_lookup.register(cls, _concatenate)


def copied(block: Any) -> Any:
    """Copy a block of any library."""
    return backend_of(block).copy(block)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    return namespace_of(arrays[0]).concat(list(arrays), axis=axis)


def _know_torch() -> None:
    """Let Dask concatenate tensors, for users who convert blocks with `x.map_blocks`."""
    dispatch = sys.modules.get("dask.array.dispatch")
    lookup = getattr(dispatch, "concatenate_lookup", None)
    if lookup is not None:

        @lookup.register_lazy("torch")  # type: ignore[untyped-decorator]
        def register() -> None:
            import torch

            lookup.register(torch.Tensor, _concatenate)


_know_torch()
