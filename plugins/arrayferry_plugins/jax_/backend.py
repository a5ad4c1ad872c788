"""The backend of JAX: facts about its arrays, and the general path to and from NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from arrayferry import Autodiff, ConversionError, TracedValueError

from .dtypes import WIDE, dtype_names
from .functions import HostCalls, JaxAutodiff
from .identity import owned
from .placement import (
    Spread,
    device_name,
    first_device,
    keeping_dtype,
    overlap,
    place_name,
    put,
    without_mesh,
)
from .random import JaxRandom, seed_number

if TYPE_CHECKING:
    from arrayferry.typing import Memory


class JaxBackend(HostCalls):
    """`jax.Array`, on any device of JAX. Its arrays include tracers, which have no values, sparse arrays and references."""

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
    dlpack_devices: tuple[str, ...] = ("cuda",)
    autodiff: Autodiff | None = JaxAutodiff()

    def to_numpy(self, x: Any) -> Any:
        import jax
        import numpy as np

        if self.is_traced(x):
            raise TracedValueError("a traced jax value has no values yet")
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            raise ConversionError(
                "a JAX PRNG key array cannot be converted",
                remedy="Call jax.random.key_data(x) first.",
            )
        _refuse(x)
        _refuse_unreduced(x)
        if not x.is_fully_addressable:
            raise ConversionError(
                "a JAX array that is spread over several processes cannot be converted",
                remedy="Call jax.experimental.multihost_utils.process_allgather(x) first.",
            )
        # asarray gathers from several devices into a cache, which the result would share
        return np.asarray(x) if len(x.devices()) == 1 else np.array(x)

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import jax

        place = None if device is None else self._own_device(device)
        with jax.ensure_compile_time_eval():
            return put(owned(x), place)

    def is_sparse(self, x: Any) -> bool:
        return isinstance(x, getattr(sys.modules.get("jax.experimental.sparse"), "JAXSparse", ()))

    def to_dense(self, x: Any) -> Any:
        return x.todense()

    def copy(self, x: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if self.is_sparse(x):
            return jax.tree.map(self.copy, x)
        _refuse(x)
        with jax.debug_nans(False), jax.debug_infs(False), without_mesh(), keeping_dtype(x):
            try:
                y = jnp.array(x, copy=True)
            except ValueError:  # it has left a mesh, and its type still names the mesh
                import numpy as np

                y = jax.device_put(owned(np.asarray(x)), x.sharding)
        if x.committed and not y.sharding.is_equivalent_to(x.sharding, x.ndim):
            y = jax.device_put(y, x.sharding)  # an array that is empty or in host memory
        return y

    def to_device(self, x: Any, device: Any) -> Any:
        if not self.is_sparse(x):
            _refuse(x)
            _refuse_unreduced(x)
        y = put(x, self._own_device(device))
        if len(x.sharding.device_set) + len(y.sharding.device_set) > 2 and overlap(x, y):
            y = self.copy(y)  # a shard that was there already is not moved
        return y

    def devices(self) -> tuple[str, ...]:
        import jax

        names = [self.device_name(device) for device in jax.local_devices()]
        if "cpu" not in names:
            try:
                names += [self.device_name(device) for device in jax.local_devices(backend="cpu")]
            except RuntimeError:
                pass
        return tuple(dict.fromkeys(names))

    def default_device(self) -> str:
        import jax

        device = jax.config.jax_default_device or first_device()
        if isinstance(device, str):  # a platform
            device = jax.local_devices(backend=device)[0]
        return self.device_name(device)

    def device_of(self, x: Any) -> str:
        if self.is_sparse(x):
            x = _parts(x)[0]
        sharding = x.sharding
        devices = sharding.device_set
        if len(devices) > 1:
            return self.device_name(sharding)
        return place_name(*devices, sharding.memory_kind)

    def place_of(self, x: Any) -> Any:
        if self.is_sparse(x):
            x = _parts(x)[0]
        sharding = x.sharding
        if len(sharding.device_set) > 1:
            return Spread(sharding)
        (device,) = sharding.device_set
        if sharding.memory_kind not in (None, device.default_memory().kind):
            return sharding
        name = self.device_name(device)
        return "default" if not x.committed and name == self.default_device() else name

    def is_named(self, device: Any) -> bool:
        return not hasattr(device, "device_set")  # a sharding

    def is_on(self, x: Any, device: Any) -> bool:
        if isinstance(device, Spread):
            device = device.fitting(x.shape)
        if self.is_sparse(x):
            return all(self.is_on(part, device) for part in _parts(x))
        try:
            return bool(x.sharding.is_equivalent_to(device, x.ndim))
        except (IndexError, ValueError):  # it has fewer axes than the sharding names
            return False

    def device_name(self, device: Any) -> str:
        return device_name(device)

    def _own_device(self, device: Any) -> Any:
        import jax

        if not isinstance(device, str):
            return device
        if device == "default":
            return None
        kind = device.partition(":")[0]
        platform = {"cuda": "gpu"}.get(kind, kind)
        for own in jax.local_devices(backend=platform):
            if self.device_name(own) == device:
                return own
        return device

    def dtypes(self) -> frozenset[str]:
        import jax

        return dtype_names(jax.config.jax_enable_x64)

    def dtype_hint(self, dtype: str) -> str:
        if dtype not in WIDE:
            return ""
        return 'Or call jax.config.update("jax_enable_x64", True) at the start of the program.'

    def address(self, x: Any) -> int | None:
        return int(x.unsafe_buffer_pointer())

    def number_dtype(self, kind: str) -> str:
        import jax

        return str(jax.dtypes.canonicalize_dtype(super().number_dtype(kind)))

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        import jax.numpy as jnp

        y = jnp.from_dlpack(x)
        if device is None:
            return y
        return put(y, self._own_device(device))  # this commits it, and does not copy it

    def fence(self, x: Any) -> Callable[[], bool] | None:
        if self.is_sparse(x) or self.is_traced(x) or self.device_of(x).startswith("cpu"):
            return None
        return x.is_ready  # type: ignore[no-any-return]

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    def is_traced(self, x: Any) -> bool:
        import jax

        if self.is_sparse(x):
            return any(map(self.is_traced, _parts(x)))
        return isinstance(x, jax.core.Tracer)

    def random(self, seed: Any = None, device: Any = None) -> JaxRandom:
        """Return random numbers from a seed, or from a key, which may be traced."""
        import jax

        if hasattr(seed, "dtype") and jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
            return JaxRandom(seed)
        key = jax.random.key(seed_number(seed))
        return JaxRandom(key if device is None else jax.device_put(key, self._own_device(device)))

    def use_device(self, device: Any) -> Any:
        import jax

        return jax.default_device(self._own_device(device))


def _parts(x: Any) -> Sequence[Any]:
    """Return the arrays that a sparse array is made of."""
    import jax

    return list(jax.tree.leaves(x))


def _refuse(x: Any) -> None:
    """Raise for a reference, and for an array that was deleted."""
    import jax

    if isinstance(x, getattr(jax, "Ref", ())):
        raise ConversionError(
            "a jax.Ref cannot be converted, since its values may change",
            remedy="Pass ref[...], its values now.",
        )
    if x.is_deleted():
        raise ConversionError(
            "a deleted JAX array cannot be converted: it was deleted, or donated to a jitted function",
            remedy="Convert it before that, or do not donate it.",
        )


def _refuse_unreduced(x: Any) -> None:
    """Raise for an array whose values are still to be summed over its devices."""
    if getattr(getattr(getattr(x, "sharding", None), "spec", None), "unreduced", None):
        raise ConversionError(
            f"a JAX array that is not summed up over its devices yet cannot be converted: {x.sharding.spec}",
            remedy="Call jax.reshard(x, jax.P()) first.",
        )


BACKEND = JaxBackend()
