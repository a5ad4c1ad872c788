"""The fastest way for small NumPy arrays into JAX: a compiled identity."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from arrayferry.adapting import Cache, CostlyCache

from .placement import mesh_is_set, without_mesh

if TYPE_CHECKING:
    import numpy as np

SMALL = 64 * 1024
"""Size in bytes up to which a compiled identity is the fastest way into JAX."""


def owned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
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


class Identity:
    """Converts NumPy arrays to JAX on one device, many in one call.

    A compiled identity is the fastest way, but one is needed for each combination of shapes and
    dtypes. So it is used from the third time that a combination is seen, for small arrays, for a limited
    number of combinations, and for a limited number of arrays at once, since compiling for thousands
    would take seconds.

    Args:
        device: the device that results are committed to. None for the default device.
    """

    MOST = 512
    """How many combinations there may be."""
    CHUNK = 128
    """How many arrays are converted at once. Compiling for them takes a thirtieth of a second."""

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._commits = device is not None
        self._spreads = False
        self._compilations = 0
        self._programs: CostlyCache[Any, Any] = CostlyCache(self.MOST)
        self._seen: Cache[Any, int] = Cache(4 * self.MOST)

    def __call__(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        import jax

        if len(xs) > self.CHUNK:
            return self._in_chunks(xs)
        converted = self._at_once(xs)
        if converted is None:  # unlike jnp.array, this does not compile for each new shape
            converted = [jax.device_put(owned(x), self._device) for x in xs]
        return converted

    def _in_chunks(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        """Convert chunk by chunk. Each call compiles for at most one chunk."""
        import jax

        results: list[Any] = list(xs)
        others: list[int] = []
        before = self._compilations
        for start in range(0, len(xs), self.CHUNK):
            places = range(start, min(start + self.CHUNK, len(xs)))
            chunk = xs[places.start : places.stop]
            converted = self._at_once(chunk, may_compile=self._compilations == before)
            if converted is None:
                others += places
            else:
                results[places.start : places.stop] = converted
        if others:
            put = jax.device_put([owned(xs[index]) for index in others], self._device)
            for index, y in zip(others, put, strict=True):
                results[index] = y
        return results

    def _at_once(
        self, xs: list[np.ndarray[Any, Any]], *, may_compile: bool = True
    ) -> list[Any] | None:
        """Convert with the compiled identity, if this combination has been seen often enough."""
        signature = tuple([(x.shape, x.dtype) for x in xs])
        program = self._programs.get(signature)
        if program is None:
            times = self._seen.get(signature, 0)
            if times < 2:
                self._seen[signature] = times + 1
                return None
            if not may_compile or any(x.nbytes > SMALL for x in xs):
                return None
            if self._programs.make_room(signature) is None:
                return None
            program = self._programs[signature] = self._program()
        self._programs.used.add(program)
        return self._run(program, xs)

    def _program(self) -> Any:
        import jax

        self._compilations += 1
        place = None if self._device is None else jax.sharding.SingleDeviceSharding(self._device)
        return jax.jit(lambda xs: xs, out_shardings=place)

    def _run(self, program: Any, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        """Call the compiled identity, without any mesh that is set, since it would spread the results over that."""
        if not self._spreads:
            try:
                ys: list[Any] = program([x.copy() for x in xs])
                if getattr(ys[0], "committed", self._commits) is self._commits:
                    return ys
            except ValueError:  # the named device is not the mesh
                if not mesh_is_set():
                    raise
        # asking for a mesh costs time, so it is done only after one was noticed
        self._spreads = mesh_is_set()
        with without_mesh():
            return program([x.copy() for x in xs])  # type: ignore[no-any-return]


@cache
def identity(*, committed: bool) -> Identity:
    """Return the identity for arrays that are committed to the CPU or to no device."""
    import jax

    return Identity(jax.local_devices(backend="cpu")[0] if committed else None)


@cache
def array_type() -> type:
    """The type of an array that is not traced; `jnp.zeros` would compile to make one."""
    import jax
    import numpy as np

    with jax.ensure_compile_time_eval():
        return type(jax.device_put(np.zeros((), np.float32)))
