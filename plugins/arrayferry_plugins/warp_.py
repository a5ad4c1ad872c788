"""NVIDIA Warp: shares host memory with NumPy, and GPU memory by DLPack.

If an array contains vectors or matrices, their axes are the last axes of the array in other libraries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES, Backend, Devices, DLPack
from arrayferry.extending import dtype_named
from arrayferry.typing import AnyArray, Device

from ._direct import is_capturing, unless_capturing
from ._sources import refused


class WarpDevices(Devices):
    """The CPU and the GPUs, the current device first."""

    def names(self) -> tuple[str, ...]:
        default_name, names = self.default(), [str(device) for device in _warp().get_devices()]
        return (default_name, *(name for name in names if name != default_name))

    def default(self) -> str:
        return str(_warp().get_device())

    def move(self, x: AnyArray, device: Device) -> Any:
        x = _array_in(x)
        with _warp().ScopedStream(
            x.device.null_stream
        ):  # the null stream waits for work on all other streams
            return _shaped((x if x.shape else x.reshape(1)).to(device), x.shape)

    def use(self, device: Device) -> Any:
        return _warp().ScopedDevice(device)

    def fence(self, x: AnyArray) -> Callable[[], bool] | None:
        if not x.device.is_cuda or is_capturing():
            return None
        event = x.device.stream.record_event()
        return unless_capturing(lambda: bool(event.is_complete))

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "Failed to allocate" in str(error)


class WarpDLPack(DLPack):
    """The exchange of arrays on a GPU by DLPack, including arrays of vectors and matrices."""

    def export(self, x: AnyArray) -> Any:
        return _array_in(x)

    def load(self, x: AnyArray, device: Device = None) -> Any:
        try:
            return _warp().from_dlpack(x)
        except IndexError as error:
            raise NotImplementedError("Warp cannot load an array without axes by DLPack") from error

    def dtype_of(self, x: AnyArray) -> str:
        return str(getattr(x.dtype, "_wp_scalar_type_", x.dtype).__name__)


class WarpBackend(Backend):
    """`warp.array`, and Isaac Lab's `ProxyArray`, which contains a `warp.array`. Gradients are not converted."""

    name = "warp"
    package = "warp"
    aliases: tuple[str, ...] = ("wp",)
    install = "warp-lang"
    array_types: tuple[str, ...] = ("warp.array", "isaaclab.utils.warp.proxy_array.ProxyArray")
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True
    devices: Devices = WarpDevices()
    dlpack: DLPack | None = WarpDLPack()

    def to_numpy(self, x: AnyArray) -> Any:
        x = _array_in(x)
        if x.device is None:
            noun = "a warp.array without memory, such as an annotation of a kernel,"
            raise refused(
                noun, remedy="Make an array with values, such as warp.zeros(shape, dtype)."
            )
        return x.numpy()

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        return _shaped(_warp().array(x, device=device, copy=False), x.shape)

    def copy(self, x: AnyArray) -> Any:
        x = _array_in(x)
        return _shaped(_warp().clone(x if x.shape else x.reshape(1)), x.shape)

    def device_of(self, x: AnyArray) -> str:
        return str(_array_in(x).device or "cpu")

    def dtypes(self) -> frozenset[str]:
        return _dtypes()

    def address(self, x: AnyArray) -> int | None:
        return _array_in(x).ptr or 0


@cache
def _warp() -> Any:
    """Return the module `warp`, initialised without printing its banner."""
    import warp

    with _setting_level:
        log_level = warp.config.log_level
        warp.config.log_level = max(log_level, warp.LOG_WARNING)
        try:
            warp.init()
        finally:
            warp.config.log_level = log_level
    return warp


_setting_level = threading.Lock()
"""The lock for changes of Warp's log level. Without it, a thread could restore the level that another thread set."""


def _array_in(x: AnyArray) -> Any:
    """Return the array in a `ProxyArray`, and any other array unchanged."""
    return getattr(x, "warp", x)


def _shaped(x: AnyArray, shape: tuple[int, ...]) -> Any:
    """Return an array of Warp. If `shape` is `()`, first remove the axis that Warp adds to 0-d arrays."""
    if not shape:
        x.shape, x.strides, x.ndim = (), (), 0
    return x


@cache
def _dtypes() -> frozenset[str]:
    """Return the names of the dtypes that Warp has: no complex ones, but bfloat16 if `ml_dtypes` is installed."""
    names = {name for name in STANDARD_DTYPES if not name.startswith("complex")}
    return frozenset(names | ({"bfloat16"} if dtype_named("bfloat16") else set()))


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [WarpBackend()]
