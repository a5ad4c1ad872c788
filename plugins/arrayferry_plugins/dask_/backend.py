"""The backend of Dask: facts about its arrays, and the general path to and from NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arrayferry import Backend, Blocks, ConversionError, converter, registry
from arrayferry_plugins.cupy_ import BACKEND as CUPY

from .block_libraries import copied, with_blocks
from .chunks import split
from .computing import compute
from .results import in_own_memory, is_finished, on_host, read_values, synchronized

if TYPE_CHECKING:
    from arrayferry.typing import Memory


class DaskBackend(Backend):
    """`dask.array.Array`, with blocks of NumPy, CuPy or any other library."""

    name = "dask"
    package = "dask.array"
    install = "'dask[array]'"
    namespace = "dask.array"
    array_types: tuple[str, ...] = ("dask.array.Array",)
    memory: Memory = "lazy"
    to_numpy_shares: bool | None = False

    def to_numpy(self, x: Any) -> Any:
        (values,) = self.compute([x])
        if isinstance(values, ConversionError):
            raise values
        return on_host(values)

    def compute(self, xs: Sequence[Any]) -> Sequence[Any]:
        values = list(compute(xs))
        seen: set[int] = set()  # Dask returns one object for equal arrays
        for index, x in enumerate(xs):
            again = id(values[index]) in seen
            seen.add(id(values[index]))
            try:
                array = read_values(values[index])
                fresh = array is values[index] and not again and is_finished(x, array)
                values[index] = in_own_memory(array, fresh=fresh)
            except ConversionError as error:
                values[index] = error
        return values

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        if device is None or str(device).startswith("cpu"):
            return split(x)
        return split(synchronized(CUPY.from_numpy(x, device)))

    def is_sparse(self, x: Any) -> bool:
        meta = x._meta  # an empty block, of whatever library
        return hasattr(type(meta), "todense") and hasattr(meta, "nnz")

    def to_dense(self, x: Any) -> Any:
        import numpy as np

        return np.array(on_host(compute([x])[0], sparse="dense"))

    def copy(self, x: Any) -> Any:
        return x.map_blocks(copied, meta=x._meta)

    def to_device(self, x: Any, device: Any) -> Any:
        if str(device).startswith("cpu"):
            return with_blocks(x, converter("numpy"))
        return with_blocks(x, converter("cupy", device=device))

    def devices(self) -> tuple[str, ...]:
        cupy = registry.backends().get("cupy")
        return ("cpu", *cupy.devices()) if cupy is not None and cupy.usable else ("cpu",)

    def default_device(self) -> str:
        return "cpu"

    def device_of(self, x: Any) -> str:
        meta = x._meta
        return f"cuda:{meta.device.id}" if type(meta).__module__.startswith("cupy") else "cpu"

    def dtypes(self) -> None:
        return None

    def blocks(
        self, xs: Sequence[Any], axis: int, *, block: int | None = None, client: Any = None
    ) -> Blocks:
        from .blocks import DaskBlocks

        return DaskBlocks(xs, axis, client)
