"""The backend of Dask, and direct converters between Dask and CuPy, which leave values on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import Backend, ConversionError, Converter, Devices, convert, converter, registry
from arrayferry.typing import AnyArray, Cost, Device, Memory
from arrayferry_plugins.cupy_ import BACKEND as CUPY

from .chunks import copied, split, with_blocks
from .computing import compute, in_own_memory, is_finished, on_host, read_values, synchronized


class DaskDevices(Devices):
    """The CPU, and the GPUs of CuPy, since blocks may be CuPy arrays."""

    def names(self) -> tuple[str, ...]:
        cupy_backend = registry.backends().get("cupy")
        if cupy_backend is None or cupy_backend.problem() is not None:
            return ("cpu",)
        return ("cpu", *cupy_backend.devices.names())

    def default(self) -> str:
        return "cpu"

    def move(self, x: AnyArray, device: Device) -> Any:
        if str(device).startswith("cpu"):
            return with_blocks(x, converter("numpy"))
        return with_blocks(x, converter("cupy", device=device))


class DaskBackend(Backend):
    """`dask.array.Array`, with blocks of NumPy, CuPy or any other library."""

    name = "dask"
    package = "dask.array"
    install = "'dask[array]'"
    namespace = "dask.array"
    array_types: tuple[str, ...] = ("dask.array.Array",)
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False
    devices: Devices = DaskDevices()

    def to_numpy(self, x: AnyArray) -> Any:
        (values,) = self.compute([x])
        if isinstance(values, ConversionError):
            raise values
        return on_host(values)

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        values = list(compute(xs))
        # for arrays with the same tasks, Dask returns one object, but results must not share memory
        seen_ids: set[int] = set()
        for index, x in enumerate(xs):
            is_repeated = id(values[index]) in seen_ids
            seen_ids.add(id(values[index]))
            try:
                array = read_values(values[index])
                is_fresh = array is values[index] and not is_repeated and is_finished(x, array)
                values[index] = in_own_memory(array, fresh=is_fresh)
            except ConversionError as error:
                values[index] = error
        return values

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        if device is None or str(device).startswith("cpu"):
            return split(x)
        return split(synchronized(CUPY.from_numpy(x, device)))

    def is_sparse(self, x: AnyArray) -> bool:
        meta = x._meta  # an empty array of the type of the blocks
        return hasattr(type(meta), "todense") and hasattr(meta, "nnz")

    def to_dense(self, x: AnyArray) -> Any:
        import numpy as np

        return np.array(on_host(compute([x])[0], sparse="dense"))

    def copy(self, x: AnyArray) -> Any:
        return x.map_blocks(copied, meta=x._meta)

    def device_of(self, x: AnyArray) -> str:
        meta = x._meta
        return f"cuda:{meta.device.id}" if type(meta).__module__.startswith("cupy") else "cpu"

    def dtypes(self) -> None:
        return None


class DaskToCupy(Converter):
    """Computes a Dask array of CuPy blocks. The values stay on the GPU.

    Blocks are computed on the CUDA streams of other threads, so the conversion waits for these streams.
    """

    source: str = "dask"
    target: str = "cupy"
    cost: Cost = "compute"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: AnyArray, device: Device = None, copy: bool | None = None) -> Any:
        if copy is False:
            return NotImplemented
        import cupy

        (values,) = compute([x])
        if not isinstance(values, cupy.ndarray):  # blocks may have another type than `x._meta`
            return convert(read_values(values), "cupy", device=device, copy=True)
        return in_own_memory(values, fresh=is_finished(x, values))


class CupyToDask(Converter):
    """Makes a Dask array of a copy of a CuPy array. Waits until the copy is complete: other threads may read it."""

    source: str = "cupy"
    target: str = "dask"
    cost: Cost = "copy"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: AnyArray, device: Device = None, copy: bool | None = None) -> Any:
        import cupy

        if copy is False:
            return NotImplemented
        with cupy.cuda.Device(x.device.id):
            return split(synchronized(x.copy()))
