"""Computed values are read into arrays that nobody else holds."""

from __future__ import annotations

from typing import Any

from arrayferry import ConversionError, backend_of, convert, registry


def read_values(values: Any) -> Any:
    """Return the computed values of an array: a NumPy array, or one of another library."""
    import numpy as np

    from arrayferry_plugins.numpy_ import NumpyBackend

    if isinstance(values, (np.ndarray, np.generic)):
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ConversionError(
                "a Dask array of masked blocks cannot be converted: its mask would be lost",
                remedy="Call dask.array.ma.filled(x, value) first.",
            )
        return NumpyBackend().to_numpy(values)
    return values if registry.kind(values).is_array else convert(values, "numpy", scalars="convert")


def is_finished(x: Any, values: Any) -> bool:
    """Return whether Dask itself put the values of an array into memory that no graph and no worker holds."""
    import numpy as np
    from dask.array import Array

    if type(x).__dask_postcompute__ is not Array.__dask_postcompute__:
        return False
    if x.npartitions > 1 or not isinstance(values, np.ndarray):
        return bool(x.npartitions > 1)
    finish, arguments = x.__dask_postcompute__()  # older versions return a single block as it is
    block = np.empty(1)
    return not np.shares_memory(finish([block], *arguments), block)


def in_own_memory(values: Any, *, fresh: bool) -> Any:
    """Return the computed values of an array in memory that nobody else holds, perhaps on a GPU.

    Args:
        values: the computed values.
        fresh: whether they are in such memory already.
    """
    import numpy as np

    if isinstance(values, np.ndarray):
        return values if fresh and _is_alone(values) else np.array(values, subok=True)
    backend = backend_of(values)
    if backend.name == "cupy":
        import cupy

        # blocks are computed on streams of other threads
        cupy.cuda.Device(values.device.id).synchronize()
    alone = fresh or backend.memory != "writable"
    return values if alone else synchronized(backend.copy(values))


def _is_alone(values: Any) -> bool:
    """Return whether an array is writable, owns its memory, and keeps hardly any other memory alive."""
    import numpy as np

    whole = values if values.base is None else values.base
    return (
        type(whole) is np.ndarray
        and bool(whole.flags.owndata and values.flags.writeable)
        and whole.nbytes <= values.nbytes + values.nbytes // 8
    )


def on_host(values: Any, sparse: Any = "raise") -> Any:
    """Return computed blocks as a NumPy array, whatever their library."""
    return convert(read_values(values), "numpy", sparse=sparse)


def synchronized(x: Any) -> Any:
    """Wait until a copy by CuPy is made, since its readers or its source are on other streams."""
    if backend_of(x).name == "cupy":
        import cupy

        with cupy.cuda.Device(x.device.id):
            cupy.cuda.get_current_stream().synchronize()
    return x
