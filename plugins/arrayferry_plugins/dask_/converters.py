"""Direct converters between Dask and CuPy, which stay on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry import Converter, convert

from .chunks import split
from .computing import compute
from .results import in_own_memory, is_finished, read_values, synchronized

if TYPE_CHECKING:
    from arrayferry.typing import Cost


class DaskToCupy(Converter):
    """Computes an array of CuPy blocks on the GPU, without going through the host.

    Blocks are computed on the streams of other threads, so the conversion waits for these.
    """

    source: str = "dask"
    target: str = "cupy"
    cost: Cost = "compute"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            return NotImplemented
        import cupy

        (values,) = compute([x])
        if not isinstance(values, cupy.ndarray):  # whatever its meta says
            return convert(read_values(values), "cupy", device=device, copy=True)
        return in_own_memory(values, fresh=is_finished(x, values))


class CupyToDask(Converter):
    """Wraps a copy of a CuPy array, on its GPU. The copy is made before other threads can read it."""

    source: str = "cupy"
    target: str = "dask"
    cost: Cost = "copy"
    source_device: str = "cuda"
    target_device: str = "cuda"

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        import cupy

        if copy is False:
            return NotImplemented
        with cupy.cuda.Device(x.device.id):
            return split(synchronized(x.copy()))
