"""CuPy: arrays on an NVIDIA GPU, exchanged with PyTorch and JAX by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry import Backend, hookimpl

if TYPE_CHECKING:
    from arrayferry.typing import Memory

__all__ = ["CupyBackend", "arrayferry_backends"]


class CupyBackend(Backend):
    """`cupy.ndarray`. On a machine without a GPU it may be installed, but cannot be used."""

    name = "cupy"
    package = "cupy"
    install = "cupy-cuda13x (or cupy-cuda12x, depending on the CUDA version of your driver)"
    array_types: tuple[str, ...] = ("cupy.ndarray",)
    memory: Memory = "writable"
    to_numpy_shares: bool | None = False
    from_numpy_shares: bool | None = False
    dlpack_devices: tuple[str, ...] = ("cuda",)

    def to_numpy(self, x: Any) -> Any:
        import cupy

        return cupy.asnumpy(x)

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import cupy

        with cupy.cuda.Device(_index(device)):
            return cupy.array(x)

    def copy(self, x: Any) -> Any:
        return x.copy()

    def to_device(self, x: Any, device: Any) -> Any:
        import cupy

        with cupy.cuda.Device(_index(device)):
            return cupy.array(x)

    def devices(self) -> tuple[str, ...]:
        import cupy

        return tuple(f"cuda:{index}" for index in range(cupy.cuda.runtime.getDeviceCount()))

    def device_of(self, x: Any) -> str:
        return f"cuda:{x.device.id}"

    def device_name(self, device: Any) -> str:
        index = getattr(device, "id", None)
        return str(device) if index is None else f"cuda:{index}"

    def address(self, x: Any) -> int | None:
        return int(x.data.ptr)

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        import cupy

        y = cupy.from_dlpack(x)
        return y if device is None else self.to_device(y, device)

    def check(self) -> str | None:
        import cupy

        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except Exception as error:
            return f"there is no usable GPU ({error})"
        return None if count else "there is no usable GPU (CUDA counts 0 devices)"


def _index(device: Any) -> int:
    if device is None:
        import cupy

        return int(cupy.cuda.runtime.getDevice())
    index = getattr(device, "id", None)
    return int(str(device).partition(":")[2] or 0) if index is None else int(index)


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [CupyBackend()]
