"""Placement of JAX arrays: devices, shardings and meshes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from arrayferry import ConversionError
from arrayferry.typing import AnyArray, Device

from .dtypes import WIDE


class Spread:
    """The devices of a sharded array, on which arrays of any shape can be put.

    Args:
        sharding: the sharding of the sharded array. If it does not fit the shape of another array, each device gets a
            copy of the other array.
    """

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding
        self.device_set: Any = sharding.device_set
        self.memory_kind: Any = sharding.memory_kind

    def fitting(self, shape: tuple[int, ...]) -> Any:
        """Return the sharding for an array of this shape."""
        try:
            self.sharding.shard_shape(shape)
        except (ValueError, IndexError, AssertionError):
            from jax.sharding import Mesh, NamedSharding, PartitionSpec

            devices = sorted(self.device_set, key=lambda device: device.id)
            mesh = getattr(self.sharding, "mesh", None) or Mesh(devices, ("all",))
            return NamedSharding(mesh, PartitionSpec(), memory_kind=self.memory_kind)
        return self.sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spread) and self.sharding == other.sharding

    def __hash__(self) -> int:
        return hash(self.sharding)

    def __repr__(self) -> str:
        return repr(self.sharding)


def put(x: AnyArray, place: Any) -> Any:
    """Put an array on a device, or on several devices by a sharding or a `Spread`."""
    import jax

    if isinstance(place, Spread):
        place = place.fitting(x.shape)
    try:
        with keeping_dtype(x):
            is_one = isinstance(place, jax.Device)  # with a plain device, x would keep its mesh
            return jax.device_put(x, jax.sharding.SingleDeviceSharding(place) if is_one else place)
    except Exception as error:
        if "Disallowed" in str(error):
            raise ConversionError(
                f"jax.transfer_guard does not allow putting an array into JAX ({error})",
                remedy='Convert outside the guard, or set it to "disallow", which still allows explicit transfers.',
            ) from error
        is_misfit = isinstance(error, (ValueError, AssertionError))
        if not is_misfit or not isinstance(place, jax.sharding.Sharding):
            raise
        raise ConversionError(
            f"an array of shape {x.shape} does not fit {place} ({error})",
            remedy="Pass a sharding that fits all arrays of the value, or convert them one by one.",
        ) from error


def overlap(x: AnyArray, y: AnyArray) -> bool:
    """Return whether two arrays share the memory of a shard."""

    def addresses(array: AnyArray) -> set[int]:
        return {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}

    return x.size > 0 and not addresses(x).isdisjoint(addresses(y))


@cache
def first_device() -> Any:
    """Return the first device of this process."""
    import jax

    return jax.local_devices()[0]


def device_name(device: Any) -> str:
    """Return the name of a device, or the names of the devices of a sharding. See `arrayferry.Devices.name_of`."""
    devices = getattr(device, "device_set", None)
    if devices is not None:  # `device` is a sharding
        sorted_devices = sorted(devices, key=lambda device: device.id)
        names = [place_name(member, device.memory_kind) for member in sorted_devices]
        return ",".join(dict.fromkeys(names))
    platform = getattr(device, "platform", None)
    if platform is None:
        return str(device)
    device_kind = "cuda" if platform == "gpu" else platform
    index = device.local_hardware_id if device_kind != "cpu" else device.id
    return device_kind if device_kind == "cpu" and not index else f"{device_kind}:{index or 0}"


def own_device(device: Device) -> Any:
    """Return JAX's device for a name, None for "default", and any other object or unknown name unchanged."""
    import jax

    if not isinstance(device, str):
        return device
    if device == "default":
        return None
    device_kind = device.partition(":")[0]
    platform = {"cuda": "gpu"}.get(device_kind, device_kind)
    for candidate in jax.local_devices(backend=platform):
        if device_name(candidate) == device:
            return candidate
    return device


@cache
def place_name(device: Any, memory_kind: str | None) -> str:
    """Return the name of a device. For host memory that a GPU can read, return "cpu"."""
    if device.platform != "cpu" and memory_kind in ("pinned_host", "unpinned_host"):
        return "cpu"
    return device_name(device)


def keeping_dtype(x: AnyArray) -> AbstractContextManager[Any]:
    """Return a context in which an array keeps its dtype, even if JAX's settings disable that dtype."""
    import jax

    if jax.config.jax_enable_x64 or x.dtype.name not in WIDE:
        return nullcontext()
    import jax.experimental

    module: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return module.enable_x64(True)  # type: ignore[no-any-return]


def staying(x: AnyArray) -> AbstractContextManager[Any]:
    """Return a context in which JAX's results are on the device of an array, even if the array is uncommitted."""
    import jax

    default_device = jax.config.jax_default_device or first_device()
    already_stays = isinstance(x, jax.core.Tracer) or x.committed or default_device in x.devices()
    return nullcontext() if already_stays else jax.default_device(*x.devices())


def mesh_is_set() -> bool:
    """Return whether a mesh is set. JAX puts new arrays on the devices of a set mesh."""
    import jax

    return not jax.sharding.get_abstract_mesh().empty


def without_mesh() -> AbstractContextManager[Any]:
    """Return a context in which no mesh is set. Inside a traced function, the mesh cannot be unset."""
    import jax

    if not mesh_is_set():
        return nullcontext()
    import numpy as np

    set_mesh: Any = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh
    try:
        return set_mesh(jax.sharding.Mesh(np.empty((), object), ()))  # type: ignore[no-any-return]
    except ValueError:  # inside a traced function, JAX does not set another mesh
        return nullcontext()
