"""Dask: lazy arrays, computed when they are converted to another library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Backend, Blocks, ConversionError, Converter, hookimpl

__all__ = ["DaskBackend", "arrayferry_backends", "arrayferry_converters"]


BLOCK = 64 * 1024 * 1024
"""Size in bytes from which on an array is split into blocks."""


class DaskBackend(Backend):
    """`dask.array.Array`, with blocks of NumPy or CuPy."""

    name = "dask"
    package = "dask.array"
    install = "'dask[array]'"
    namespace = "dask.array"
    array_types = ("dask.array.Array",)
    memory = "lazy"
    to_numpy_shares = False
    from_numpy_shares = None

    def to_numpy(self, x: Any) -> Any:
        return self.to_numpy_many([x])[0]

    def to_numpy_many(self, xs: Sequence[Any]) -> list[Any]:
        import numpy as np

        return [np.array(_on_host(values)) for values in _compute(xs)]

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import dask.array as da

        if device is not None and not str(device).startswith("cpu"):
            import cupy

            with cupy.cuda.Device(int(str(device).partition(":")[2] or 0)):
                return da.from_array(cupy.asarray(x), name=False, asarray=False)
        # one block is what Dask would choose too, but its choice may fail for empty arrays and odd dtypes
        return da.from_array(x, chunks=x.shape if x.nbytes < BLOCK else "auto", name=False)

    def is_sparse(self, x: Any) -> bool:
        return _is_sparse(x._meta)

    def to_dense(self, x: Any) -> Any:
        import numpy as np

        return np.array(_on_host(_compute([x])[0], sparse="dense"))

    def copy(self, x: Any) -> Any:
        return x.map_blocks(lambda block: block.copy(), dtype=x.dtype, meta=x._meta)

    def to_device(self, x: Any, device: Any) -> Any:
        if str(device).startswith("cpu"):
            return x.map_blocks(_on_host, dtype=x.dtype)
        import cupy

        return x.map_blocks(cupy.asarray, dtype=x.dtype)

    def devices(self) -> tuple[str, ...]:
        from arrayferry import registry

        cupy = registry.backends().get("cupy")
        usable = cupy is not None and cupy.installed and cupy.usable
        return ("cpu", *cupy.devices()) if cupy is not None and usable else ("cpu",)

    def device_of(self, x: Any) -> str:
        meta = x._meta
        return f"cuda:{meta.device.id}" if type(meta).__module__.startswith("cupy") else "cpu"

    def dtypes(self) -> None:
        return None

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        from ._dask_blocks import DaskBlocks

        return DaskBlocks(xs, axis, client)


def _compute(xs: Sequence[Any]) -> Sequence[Any]:
    """Compute several arrays together, so that what they have in common is computed once."""
    import dask

    try:
        return dask.compute(*xs)  # type: ignore[no-any-return]
    except MemoryError:
        raise
    except Exception as error:
        which = "a Dask array" if len(xs) == 1 else f"one of {len(xs)} Dask arrays"
        raise ConversionError(
            f"{which} could not be computed ({type(error).__name__}: {error})",
            remedy="The error is in its graph: x.compute() raises it too.",
        ) from error


def _is_sparse(blocks: Any) -> bool:
    """Tell whether blocks, or the empty one that stands for them, are sparse, of whatever library."""
    return hasattr(type(blocks), "todense") and hasattr(blocks, "nnz")


def _on_host(values: Any, sparse: Any = None) -> Any:
    """Return computed blocks as a NumPy array, whatever their library."""
    import numpy as np

    from .numpy_ import NumpyBackend

    if isinstance(values, (np.ndarray, np.generic)):
        if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
            raise ConversionError(
                "a Dask array of masked blocks cannot be converted: its mask would be lost",
                remedy="Call dask.array.ma.filled(x, value) first.",
            )
        return NumpyBackend().to_numpy(values)
    from arrayferry import convert

    return convert(values, "numpy", scalars="convert", sparse=sparse)


class DaskToCupy(Converter):
    """Computes an array of CuPy blocks on the GPU, so that the host is not needed."""

    source, target, cost = "dask", "cupy", "compute"
    source_device = target_device = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            return NotImplemented
        (values,) = _compute([x])
        return values.copy()


class CupyToDask(Converter):
    """Wraps a copy of a CuPy array, on its GPU."""

    source, target, cost = "cupy", "dask", "copy"
    source_device = target_device = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        import dask.array as da

        return (
            NotImplemented if copy is False else da.from_array(x.copy(), name=False, asarray=False)
        )


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [DaskBackend()]


@hookimpl
def arrayferry_converters() -> list[Converter]:
    """Return the direct converters, which stay on the GPU."""
    return [DaskToCupy(), CupyToDask()]
