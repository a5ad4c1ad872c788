"""The backend of JAX: the properties of its arrays and devices, and the general path to and from NumPy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from arrayferry import Backend, Devices, DLPack, TracedValueError
from arrayferry.typing import AnyArray, Device, Memory
from arrayferry_plugins._sources import refused

from .arrays import copied, dense, is_sparse, is_traced, parts, refuse, refuse_unreduced
from .dtypes import WIDE, dtype_names
from .identity import owned
from .placement import Spread, device_name, first_device, overlap, own_device, place_name, put


class JaxDevices(Devices):
    """All devices of this process. They have names, but shardings and kinds of memory have none."""

    def names(self) -> tuple[str, ...]:
        import jax

        names = [device_name(device) for device in jax.local_devices()]
        if "cpu" not in names:
            with suppress(RuntimeError):
                names += [device_name(device) for device in jax.local_devices(backend="cpu")]
        return tuple(dict.fromkeys(names))

    def default(self) -> str:
        import jax

        device = jax.config.jax_default_device or first_device()
        if isinstance(device, str):  # jax_default_device may name a platform
            device = jax.local_devices(backend=device)[0]
        return device_name(device)

    def name_of(self, device: Device) -> str:
        return device_name(device)

    def place_of(self, x: AnyArray) -> Any:
        if is_sparse(x):
            x = parts(x)[0]
        sharding = x.sharding
        if len(sharding.device_set) > 1:
            return Spread(sharding)
        (device,) = sharding.device_set
        if sharding.memory_kind not in (None, device.default_memory().kind):
            return sharding
        name = device_name(device)
        return "default" if not x.committed and name == self.default() else name

    def is_named(self, device: Device) -> bool:
        return not hasattr(device, "device_set")  # a sharding has a `device_set`, but no name

    def is_on(self, x: AnyArray, device: Device) -> bool:
        if isinstance(device, Spread):
            device = device.fitting(x.shape)
        if is_sparse(x):
            return all(self.is_on(part, device) for part in parts(x))
        try:
            return bool(x.sharding.is_equivalent_to(device, x.ndim))
        except (IndexError, ValueError):  # the array has fewer axes than the sharding
            return False

    def move(self, x: AnyArray, device: Device) -> Any:
        import jax

        if is_sparse(x):
            return jax.tree.map(lambda part: self.move(part, device), x)
        refuse(x)
        refuse_unreduced(x)
        y = put(x, own_device(device))
        if len(x.sharding.device_set) + len(y.sharding.device_set) > 2 and overlap(x, y):
            y = copied(y)  # JAX shares the memory of a shard that is on the device already
        return y

    def use(self, device: Device) -> Any:
        import jax

        return jax.default_device(own_device(device))

    def fence(self, x: AnyArray) -> Callable[[], bool] | None:
        if is_sparse(x) or is_traced(x) or device_of(x).startswith("cpu"):
            return None
        return x.is_ready  # type: ignore[no-any-return]

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


class JaxDLPack(DLPack):
    """The exchange of JAX arrays on a GPU by DLPack."""

    def load(self, x: AnyArray, device: Device = None) -> Any:
        import jax.numpy as jnp

        y = jnp.from_dlpack(x)
        if device is None:
            return y
        return put(y, own_device(device))  # this commits the array to its device, without a copy

    def wait(self, x: AnyArray) -> bool:
        import jax

        with jax.ensure_compile_time_eval():
            y = self.load(x)
            # JAX computes on one stream, so this comparison and all later computations wait for `y`
            _ = y == y
        return True


def device_of(x: AnyArray) -> str:
    """Return the name of the device of an array, or the names of its devices, separated by commas."""
    if is_sparse(x):
        x = parts(x)[0]
    sharding = x.sharding
    devices = sharding.device_set
    if len(devices) > 1:
        return device_name(sharding)
    return place_name(*devices, sharding.memory_kind)


class JaxBackend(Backend):
    """`jax.Array`, on any device of JAX. `array_types` also names tracers, sparse arrays and references."""

    name = "jax"
    package = install = "jax"
    namespace = "jax.numpy"
    aliases: tuple[str, ...] = ("jnp",)
    array_types: tuple[str, ...] = (
        "jax.Array",
        "jax.core.Tracer",
        "jax.experimental.sparse.JAXSparse",
        "jax.Ref",
    )
    item_types: tuple[str, ...] = ("jax._src.array.ArrayImpl",)
    memory: Memory = "immutable"
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = False
    devices: Devices = JaxDevices()
    dlpack: DLPack | None = JaxDLPack()

    # these functions are called often, and a method around each of them would add a call
    is_traced: staticmethod[[Any], bool] = staticmethod(is_traced)  # type: ignore[assignment]
    device_of: staticmethod[[Any], str] = staticmethod(device_of)  # type: ignore[assignment]

    def to_numpy(self, x: AnyArray) -> Any:
        import jax
        import numpy as np

        if is_traced(x):
            raise TracedValueError(
                "a traced JAX array has no values yet",
                remedy="Convert outside the traced function (jit, grad, vmap), or let a function convert its "
                "arguments and results: arrayferry.agnostic(..., result_like=...).",
            )
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            raise refused("a JAX PRNG key array", "jax.random.key_data(x)")
        refuse(x)
        refuse_unreduced(x)
        if not x.is_fully_addressable:
            first_call = "jax.experimental.multihost_utils.process_allgather(x)"
            raise refused("a JAX array that is spread over several processes", first_call)
        # for an array on several devices, JAX caches what np.asarray() returns, so copy it
        return np.asarray(x) if len(x.devices()) == 1 else np.array(x)

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        import jax

        with jax.ensure_compile_time_eval():
            return put(owned(x), own_device(device))

    def is_sparse(self, x: AnyArray) -> bool:
        return is_sparse(x)

    def to_dense(self, x: AnyArray) -> Any:
        return dense(x)

    def dtypes(self) -> frozenset[str]:
        import jax

        return dtype_names(jax.config.jax_enable_x64)

    def dtype_hint(self, dtype: str) -> str:
        if dtype not in WIDE:
            return ""
        return 'Or call jax.config.update("jax_enable_x64", True) at the start of the program.'

    def copy(self, x: AnyArray) -> Any:
        return copied(x)

    def address(self, x: AnyArray) -> int | None:
        return int(x.unsafe_buffer_pointer())

    def number_dtype(self, kind: str) -> str:
        import jax

        return str(jax.dtypes.canonicalize_dtype(super().number_dtype(kind)))


BACKEND = JaxBackend()
