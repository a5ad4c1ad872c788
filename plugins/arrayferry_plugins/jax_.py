"""JAX: arrays that never change, whatever memory they were made from.

Values are first copied into memory that nobody else holds. JAX may then alias that memory, or read it
later in another thread, as it does for large arrays even if it is told to copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from arrayferry import (
    Backend,
    ConversionError,
    Converter,
    Inline,
    Options,
    Random,
    TracedValueError,
    fit_dtype,
    hookimpl,
)

from ._jax_functions import JaxAutodiff, call_host
from ._packed import Packed, Part, cut

if TYPE_CHECKING:
    import numpy as np

    from arrayferry import Autodiff
    from arrayferry.typing import Cost, Memory

__all__ = ["JaxBackend", "arrayferry_backends", "arrayferry_converters"]

SMALL = 64 * 1024
"""Size in bytes up to which a compiled identity is the fastest way into JAX."""


class JaxBackend(Backend):
    """`jax.Array`, on any device of JAX. Tracers are its arrays too, without values, and sparse arrays."""

    name = "jax"
    package = "jax"
    namespace = "jax.numpy"
    aliases: tuple[str, ...] = ("jnp",)
    array_types: tuple[str, ...] = (
        "jax.Array",
        "jax.core.Tracer",
        "jax.experimental.sparse.JAXSparse",
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
        _refuse_deleted(x)
        if not x.is_fully_addressable:
            raise ConversionError(
                "a JAX array that is spread over several processes cannot be converted",
                remedy="Call jax.experimental.multihost_utils.process_allgather(x) first.",
            )
        # asarray caches what it gathers from several devices, which would be shared with the result
        return np.asarray(x) if len(x.devices()) == 1 else np.array(x)

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import jax

        place = None if device is None else self._own_device(device)
        with jax.ensure_compile_time_eval():
            return _put(_private(x), place)

    def is_sparse(self, x: Any) -> bool:
        return isinstance(x, getattr(sys.modules.get("jax.experimental.sparse"), "JAXSparse", ()))

    def to_dense(self, x: Any) -> Any:
        return x.todense()

    def copy(self, x: Any) -> Any:
        import jax
        import jax.numpy as jnp

        if self.is_sparse(x):
            return jax.tree.map(self.copy, x)
        _refuse_deleted(x)
        with jax.debug_nans(False), jax.debug_infs(False), _without_mesh(), _keeping(x):
            try:
                y = jnp.array(x, copy=True)
            except ValueError:  # it has left a mesh, and its type still names that
                import numpy as np

                y = jax.device_put(_private(np.asarray(x)), x.sharding)
        if x.committed and not y.sharding.is_equivalent_to(x.sharding, x.ndim):
            y = jax.device_put(y, x.sharding)  # what is empty, or in memory of the host
        return y

    def to_device(self, x: Any, device: Any) -> Any:
        y = _put(x, self._own_device(device))
        if len(x.sharding.device_set) + len(y.sharding.device_set) > 2 and _overlap(x, y):
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

        device = jax.config.jax_default_device or _first_device()
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
        return _place_name(*devices, sharding.memory_kind)

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
        import jax

        if isinstance(device, jax.Device):
            device = jax.sharding.SingleDeviceSharding(device)
        if isinstance(device, Spread):
            device = device.fitting(x.shape)
        if self.is_sparse(x):
            return all(self.is_on(part, device) for part in _parts(x))
        try:
            return bool(x.sharding.is_equivalent_to(device, x.ndim))
        except (IndexError, ValueError):  # it has fewer axes than the sharding names
            return False

    def device_name(self, device: Any) -> str:
        devices = getattr(device, "device_set", None)
        if devices is not None:  # a sharding
            own = sorted(devices, key=lambda device: device.id)
            names = [_place_name(each, device.memory_kind) for each in own]
            return ",".join(dict.fromkeys(names))
        platform = getattr(device, "platform", None)
        if platform is None:
            return str(device)
        kind = "cuda" if platform == "gpu" else platform
        index = device.local_hardware_id if kind != "cpu" else device.id
        return kind if kind == "cpu" and not index else f"{kind}:{index or 0}"

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

        return _ALL if jax.config.jax_enable_x64 else _DTYPES

    def dtype_hint(self, dtype: str) -> str:
        return (
            'Or call jax.config.update("jax_enable_x64", True) at the start.'
            if dtype in _WIDE
            else ""
        )

    def address(self, x: Any) -> int | None:
        return int(x.unsafe_buffer_pointer())

    def number_dtype(self, kind: str) -> str:
        import jax

        return str(jax.dtypes.canonicalize_dtype(super().number_dtype(kind)))

    def to_dlpack(self, x: Any) -> Any:
        return x

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        import jax.numpy as jnp

        y = jnp.from_dlpack(x)
        if device is None:
            return y
        return _put(y, self._own_device(device))  # it is committed then, and not copied

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

    def callback(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        arrays: Sequence[Any],
        results: Sequence[tuple[tuple[int, ...], str]],
        *,
        name: str,
        ordered: bool = False,
    ) -> list[Any]:
        return call_host(function, arrays, results, name=name, ordered=ordered)

    def random(self, seed: Any = None, device: Any = None) -> JaxRandom:
        """Return random numbers from a seed, or from a key, which may be traced."""
        import jax

        if hasattr(seed, "dtype") and jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
            return JaxRandom(seed)
        key = jax.random.key(_seed_number(seed))
        return JaxRandom(key if device is None else jax.device_put(key, self._own_device(device)))

    def use_device(self, device: Any) -> Any:
        import jax

        return jax.default_device(self._own_device(device))


class Spread:
    """The devices of an array in shards, for arrays of any shape.

    Args:
        sharding: of that array. Arrays that it does not fit are copied to all of its devices.
    """

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding
        self.device_set: Any = sharding.device_set
        self.memory_kind: Any = sharding.memory_kind

    def fitting(self, shape: tuple[int, ...]) -> Any:
        """Return the sharding for an array of a shape."""
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


class JaxRandom(Random):
    """Random numbers from a key, which is split at each use. It works inside `jit` too.

    Args:
        key: a key, as `jax.random.key` makes it.

    Attributes:
        used: whether a number was drawn.
    """

    def __init__(self, key: Any) -> None:
        self._keys = [key]
        self.used: bool = False

    def key(self) -> Any:
        import jax

        self.used = True
        if len(self._keys) == 1:  # to split into several at once is cheaper
            self._keys = list(jax.random.split(self._keys[0], 4))
        return self._keys.pop()

    def uniform(self, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: str = "float32") -> Any:
        import jax

        return jax.random.uniform(self.key(), tuple(shape), dtype, low, high)

    def normal(self, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: str = "float32") -> Any:
        import jax

        values = jax.random.normal(self.key(), tuple(shape), dtype)
        return (values * std + mean).astype(dtype)

    def integers(self, shape: Any, low: Any, high: Any, dtype: str = "int32") -> Any:
        import jax

        return jax.random.randint(self.key(), tuple(shape), low, high, dtype)

    def categorical(self, shape: Any, logits: Any, dtype: str = "int32") -> Any:
        import jax

        return jax.random.categorical(self.key(), logits, shape=tuple(shape)).astype(dtype)


def _seed_number(seed: Any) -> int:
    """Return a seed that `jax.random.key` takes: numbers below 2**32 as they are."""
    import numpy as np

    if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32:
        return int(seed)
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


def _put(x: Any, place: Any) -> Any:
    """Put an array on a device, or on several in shards."""
    import jax

    if isinstance(place, Spread):
        place = place.fitting(x.shape)
    try:
        with _keeping(x):
            return jax.device_put(x, place)
    except (ValueError, AssertionError) as error:
        if not isinstance(place, jax.sharding.Sharding):
            raise
        raise ConversionError(
            f"an array of shape {x.shape} does not fit {place} ({error})",
            remedy="Pass a sharding that fits all arrays of the value, or convert them one by one.",
        ) from error


def _overlap(x: Any, y: Any) -> bool:
    """Tell whether two arrays have a shard in common."""

    def addresses(array: Any) -> set[int]:
        return {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}

    return x.size > 0 and not addresses(x).isdisjoint(addresses(y))


@cache
def _first_device() -> Any:
    import jax

    return jax.local_devices()[0]


@cache
def _place_name(device: Any, memory_kind: str | None) -> str:
    """Return the name of a device; "cpu" for memory of the host that a GPU can read."""
    if device.platform != "cpu" and memory_kind in ("pinned_host", "unpinned_host"):
        return "cpu"
    return BACKEND.device_name(device)


def _parts(x: Any) -> Sequence[Any]:
    """Return the arrays that a sparse array is made of."""
    import jax

    parts: list[Any] = jax.tree.leaves(x)
    return parts


def _refuse_deleted(x: Any) -> None:
    if x.is_deleted():
        raise ConversionError(
            "a deleted JAX array cannot be converted: it was deleted, or donated to a jitted function",
            remedy="Convert it before that, or do not donate it.",
        )


_WIDE = frozenset(("int64", "uint64", "float64", "complex128"))
_DTYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "float32",
        "complex64",
        "bfloat16",
        "int2",
        "int4",
        "uint2",
        "uint4",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
    ]
)


_ALL = _DTYPES | _WIDE
BACKEND = JaxBackend()


def _private(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array into memory that nobody else holds, aligned so that JAX need not copy it again."""
    import numpy as np

    if x.nbytes <= SMALL:
        return x.copy()
    memory = np.empty(x.nbytes + 64, np.uint8)
    offset = -memory.ctypes.data % 64
    copy: np.ndarray[Any, Any] = memory[offset : offset + x.nbytes].view(x.dtype)
    copy = copy.reshape(x.shape)
    copy[...] = x
    return copy


class _Identity:
    """Converts NumPy arrays to JAX on one device, many in one call.

    A compiled identity is the fastest way, but it compiles once for each combination of shapes and
    dtypes. So it is used from the second time that a combination is seen, for small arrays, for a limited
    number of combinations, and for a limited number of arrays at once, since compiling for thousands
    would take seconds.

    Args:
        device: the device, to which results are committed. None for the default device.
    """

    MOST = 512
    """Combinations."""
    CHUNK = 128
    """Arrays at once. Compiling for them takes a thirtieth of a second."""

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._commits = device is not None
        self._spreads = False
        self._compilations = 0
        self._reset()

    def _reset(self) -> None:
        import jax

        place = None if self._device is None else jax.sharding.SingleDeviceSharding(self._device)
        self._compiled = jax.jit(lambda xs: xs, out_shardings=place)
        self._states: dict[Any, str] = {}

    def __call__(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        import jax

        if len(xs) > self.CHUNK:
            return self._in_chunks(xs)
        found = self._at_once(xs)
        if found is None:  # unlike jnp.array, this does not compile for each new shape
            found = [jax.device_put(_private(x), self._device) for x in xs]
        return found

    def _in_chunks(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        """Convert chunk by chunk. At most one is compiled for in each call."""
        import jax

        results: list[Any] = list(xs)
        others: list[int] = []
        before = self._compilations
        for start in range(0, len(xs), self.CHUNK):
            places = range(start, min(start + self.CHUNK, len(xs)))
            chunk = xs[places.start : places.stop]
            found = self._at_once(chunk, may_compile=self._compilations == before)
            if found is None:
                others += places
            else:
                results[places.start : places.stop] = found
        if others:
            put = jax.device_put([_private(xs[index]) for index in others], self._device)
            for index, y in zip(others, put, strict=True):
                results[index] = y
        return results

    def _at_once(
        self, xs: list[np.ndarray[Any, Any]], *, may_compile: bool = True
    ) -> list[Any] | None:
        """Convert by the compiled identity, if this combination is known for it."""
        signature = tuple([(x.shape, x.dtype) for x in xs])
        state = self._states.get(signature)
        if state == "compiled" or (state == "ready" and may_compile):
            if state == "ready":
                self._compilations += 1
                self._states[signature] = "compiled"
            return self._run(xs)
        if state is None:
            if len(self._states) >= self.MOST:
                self._reset()
            self._states[signature] = "seen"
        elif state == "seen" and all(x.nbytes <= SMALL for x in xs):
            self._states[signature] = "ready"
        return None

    def _run(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        """Call the compiled identity, outside of a mesh that is set, over which it would spread the results."""
        if not self._spreads:
            try:
                ys: list[Any] = self._compiled([x.copy() for x in xs])
                if getattr(ys[0], "committed", self._commits) is self._commits:
                    return ys
            except ValueError:  # a device was named that is not the mesh
                if not _mesh_is_set():
                    raise
        self._spreads = (
            _mesh_is_set()
        )  # to ask for it costs time, so it is asked for once there was one
        with _without_mesh():
            return self._compiled([x.copy() for x in xs])  # type: ignore[no-any-return]


def _keeping(x: Any) -> AbstractContextManager[Any]:
    """Return a context in which an array keeps its dtype, though it is one of those that JAX has not got now."""
    import jax

    if jax.config.jax_enable_x64 or x.dtype.name not in _WIDE:
        return nullcontext()
    import jax.experimental

    place: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return place.enable_x64(True)  # type: ignore[no-any-return]


def _mesh_is_set() -> bool:
    import jax

    return not jax.sharding.get_abstract_mesh().empty


def _without_mesh() -> AbstractContextManager[Any]:
    """Return a context in which no mesh is set, so that arrays are made where they are made without one."""
    import jax

    if not _mesh_is_set():
        return nullcontext()
    import numpy as np

    enter: Any = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh
    try:
        return enter(jax.sharding.Mesh(np.empty((), object), ()))  # type: ignore[no-any-return]
    except ValueError:  # inside a traced function
        return nullcontext()


@cache
def _identity(*, committed: bool) -> _Identity:
    import jax

    return _Identity(jax.local_devices(backend="cpu")[0] if committed else None)


@cache
def _native_dtypes(wide: bool) -> frozenset[np.dtype[Any]]:
    """The dtypes that JAX has, in native byte order."""
    import ml_dtypes
    import numpy as np

    names = _ALL if wide else _DTYPES
    found = [getattr(ml_dtypes, name, None) or name for name in names if name != "bool"]
    return frozenset([np.dtype(bool), *map(np.dtype, found)])


@cache
def _array_type() -> type:
    """The type of an array that is not traced; `jnp.zeros` would compile to make one."""
    import jax
    import numpy as np

    with jax.ensure_compile_time_eval():
        return type(jax.device_put(np.zeros((), np.float32)))


class _ToJax(Converter):
    """Converts arrays in host memory: one call for all small arrays of a tree."""

    target: str = "jax"
    cost: Cost = "copy"

    def view(self) -> Callable[[Any], Any]:
        """Return a function that views an ordinary array as a NumPy array, and raises for others."""
        raise NotImplementedError

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        # the user's narrowing is not known here, so the general path handles other dtypes
        many = self.bind_many(Options(device=device, copy=copy, narrowing="forbid"))
        return NotImplemented if many is None else many([x])[0]

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        many = self.bind_many(options)
        return None if many is None else lambda x: many([x])[0]

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        import jax

        if options.copy is False or not (options.device is None or options.device == "cpu"):
            return None
        if jax.default_backend() != "cpu":
            return None
        view, config = self.view(), jax.config
        enter = _identity(committed=options.device is not None)
        narrow, wide, kind = _native_dtypes(False), _native_dtypes(True), _array_type()

        def many(xs: list[Any]) -> list[Any]:
            arrays = [view(x) for x in xs]
            held = wide if config.jax_enable_x64 else narrow
            for index, array in enumerate(arrays):
                if array.dtype not in held:
                    fitting = fit_dtype(array, BACKEND, options.narrowing)
                    arrays[index] = fitting.astype(fitting.dtype.newbyteorder("="))
            if config.jax_debug_nans or config.jax_debug_infs:
                raise RuntimeError("the compiled identity cannot be used")
            results = enter(arrays)
            if type(results[0]) is not kind:
                raise RuntimeError("inside a traced function, or compilation is disabled")
            return results

        return many


class NumpyToGpu(Packed):
    """Brings the small arrays of a tree to a GPU in one transfer for each dtype, where a compiled function splits them.

    It compiles once for each combination of shapes and dtypes, so it is used from the second time that one is seen,
    and for a limited number of them.
    """

    target = "jax"

    def __init__(self) -> None:
        self._seen: dict[Any, bool] = {}

    @property
    def backend(self) -> Backend:
        return BACKEND

    def transfer(self, staged: Any, dtype: Any, device: Any) -> Any:
        return staged if device is None else _put(staged, BACKEND._own_device(device))

    def split(self, flat: Any, parts: tuple[Part, ...]) -> list[Any]:
        ys: list[Any] = _split()(flat, parts)
        if type(ys[0]) is not _array_type():
            raise RuntimeError("inside a traced function, or compilation is disabled")
        return ys

    def is_worth_it(self, dtype: Any, parts: tuple[Part, ...]) -> bool:
        import jax

        if jax.config.jax_debug_nans or jax.config.jax_debug_infs:  # compiled code looks for them
            return False
        key = (parts, dtype)
        if key in self._seen:
            return True
        if len(self._seen) >= _Identity.MOST:
            self._seen.clear()
            _split().clear_cache()
        self._seen[key] = True
        return False


@cache
def _split() -> Any:
    import jax

    return jax.jit(cut, static_argnums=1)


class NumpyToJax(_ToJax):
    """Copies NumPy arrays into JAX."""

    source: str = "numpy"
    types: tuple[str, ...] = ("numpy.ndarray",)

    def view(self) -> Callable[[Any], Any]:
        return lambda x: x


class TorchToJax(_ToJax):
    """Copies CPU tensors into JAX."""

    source: str = "torch"
    types: tuple[str, ...] = ("torch.Tensor",)

    def view(self) -> Callable[[Any], Any]:
        from .torch_ import host_values

        return host_values()


class JaxToNumpy(Converter):
    """Shares JAX's memory as a read-only view."""

    source: str = "jax"
    target: str = "numpy"
    cost: Cost = "share"
    types: tuple[str, ...] = ("jax._src.array.ArrayImpl",)

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        bound = self.bind(Options(copy=copy))
        return NotImplemented if bound is None else bound(x)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        import numpy as np

        if options.copy is False:
            return None
        return np.array if options.copy else np.asarray

    def inline(self, options: Options) -> Inline | None:
        show = self.bind(options)
        return None if show is None else Inline("", "{show}({x})", {"show": show})


class JaxToTorch(Converter):
    """Copies through host memory, since PyTorch has no read-only tensors."""

    source: str = "jax"
    target: str = "torch"
    cost: Cost = "copy"
    types: tuple[str, ...] = ("jax._src.array.ArrayImpl",)

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        bound = self.bind(Options(device=device, copy=copy))
        return NotImplemented if bound is None else bound(x)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        import jax
        from numpy import array
        from torch import from_numpy

        if options.copy is False or jax.default_backend() != "cpu":
            return None
        from .torch_ import BACKEND as TORCH

        def values(x: Any) -> Any:
            n = array(x)
            try:
                return from_numpy(n)
            except TypeError:  # a dtype such as bfloat16, which PyTorch reads in another way
                return TORCH.from_numpy(n)

        return values

    def inline(self, options: Options) -> Inline | None:
        from numpy import array
        from torch import from_numpy

        if self.bind(options) is None:
            return None
        return Inline("", "{take}({copy}({x}))", {"take": from_numpy, "copy": array})


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


@hookimpl
def arrayferry_converters() -> list[Converter]:
    """Return the direct converters."""
    return [NumpyToJax(), NumpyToGpu(), TorchToJax(), JaxToNumpy(), JaxToTorch()]
