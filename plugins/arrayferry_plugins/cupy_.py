"""CuPy: arrays on an NVIDIA GPU, exchanged with PyTorch and JAX by DLPack."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES, Backend, Converter, Devices, DLPack
from arrayferry.extending import dtype_named
from arrayferry.typing import AnyArray, Device

from ._direct import Packed, unless_capturing


class CupyDevices(Devices):
    """The GPUs that CuPy can use."""

    def names(self) -> tuple[str, ...]:
        return tuple(f"cuda:{index}" for index in range(_gpus()[0]))

    def default(self) -> str:
        return f"cuda:{_index(None)}"

    def name_of(self, device: Any) -> str:
        import cupy

        return f"cuda:{device.id}" if isinstance(device, cupy.cuda.Device) else str(device)

    def move(self, x: AnyArray, device: Device) -> Any:
        import cupy

        target_index = _index(device)
        if x.device.id == target_index:
            return x
        with cupy.cuda.Device(x.device.id):
            src_stream = cupy.cuda.get_current_stream()
            if not x.flags.c_contiguous:  # copy here, so that `src_stream.record()` includes it
                x = x.copy()
        # cupy.array() copies on the stream of the target GPU, which must wait for the source GPU
        with cupy.cuda.Device(target_index):
            target_stream = cupy.cuda.get_current_stream()
            target_stream.wait_event(src_stream.record())
            y = cupy.array(x)
            src_stream.wait_event(target_stream.record())
        return y

    def use(self, device: Device) -> Any:
        import cupy

        return cupy.cuda.Device(_index(device))

    def fence(self, x: AnyArray) -> Callable[[], bool]:
        import cupy

        with cupy.cuda.Device(x.device.id):
            event = cupy.cuda.get_current_stream().record()
        return unless_capturing(lambda: bool(event.done))


class CupyDLPack(DLPack):
    """The exchange of CuPy arrays by DLPack."""

    def export(self, x: AnyArray) -> Any:
        import cupy

        # an export waits only for the current GPU, so let this GPU wait for the GPU of the array
        if x.device.id != _index(None):
            with cupy.cuda.Device(x.device.id):
                written_event = cupy.cuda.get_current_stream().record()
            cupy.cuda.get_current_stream().wait_event(written_event)
        return x

    def compact(self, x: AnyArray) -> Any:
        import cupy

        with cupy.cuda.Device(x.device.id):
            # DLPack's device type 13 is managed memory, which many libraries refuse
            if cupy.empty(1).__dlpack_device__()[0] != 13:
                return NotImplemented
            with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
                return x.copy()

    def load(self, x: AnyArray, device: Device = None) -> Any:
        import cupy

        return cupy.from_dlpack(x) if hasattr(x, "__dlpack__") else cupy.asarray(x)


class CupyBackend(Backend):
    """`cupy.ndarray`. On a machine without a GPU, CuPy may be installed, but cannot be used."""

    name = "cupy"
    package = "cupy"
    install = "cupy-cuda13x (or cupy-cuda12x, depending on the CUDA version of your driver)"
    array_types: tuple[str, ...] = ("cupy.ndarray",)
    to_numpy_shares: bool | None = False
    from_numpy_shares: bool | None = False
    devices: Devices = CupyDevices()
    dlpack: DLPack | None = CupyDLPack()

    def to_numpy(self, x: AnyArray) -> Any:
        import cupy

        return cupy.asnumpy(x)

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        import cupy

        with cupy.cuda.Device(_index(device)):
            return cupy.array(x)

    def copy(self, x: AnyArray) -> Any:
        import cupy

        with cupy.cuda.Device(
            x.device.id
        ):  # without this context, the copy would be on the current GPU
            return x.copy()

    def device_of(self, x: AnyArray) -> str:
        return f"cuda:{x.device.id}"

    def dtypes(self) -> frozenset[str]:
        return _dtypes()

    def address(self, x: AnyArray) -> int | None:
        return int(x.data.ptr)

    def check(self) -> str | None:
        num_gpus, problem = _gpus()
        return None if num_gpus else f"there is no usable GPU ({problem})"


def _index(device: Device) -> int:
    if device is None:
        import cupy

        return int(cupy.cuda.runtime.getDevice())
    index = getattr(device, "id", None)
    return int(str(device).partition(":")[2] or 0) if index is None else int(index)


@cache
def _gpus() -> tuple[int, str]:
    """Return the number of usable GPUs, and the reason if it is 0.

    The result is cached, since a forked process cannot call CUDA again.
    """
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount()), "CUDA counts 0 devices"
    except Exception as error:
        return 0, str(error) or type(error).__name__


@cache
def _dtypes() -> frozenset[str]:
    """Return the names of the dtypes that CuPy has.

    CuPy 14 and newer have bfloat16 if `ml_dtypes` and NumPy 2.1.2 or newer are installed.
    """
    import cupy
    import numpy as np

    version = int(getattr(cupy, "__version__", "0").partition(".")[0])
    has_bfloat16 = version >= 14 and np.lib.NumpyVersion(np.__version__) >= "2.1.2"
    extra_dtypes = ["bfloat16"] if has_bfloat16 and dtype_named("bfloat16") else []
    return STANDARD_DTYPES.union(extra_dtypes)


BACKEND = CupyBackend()


class NumpyToCupy(Packed):
    """Moves the small arrays of a tree to the GPU in one transfer for each dtype."""

    target = "cupy"
    backend: Backend = BACKEND

    def transfer(self, staged: Any, dtype: Any, device: Device) -> Any:
        return BACKEND.from_numpy(staged, device)


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converter for trees of small NumPy arrays."""
    return [NumpyToCupy()]
