"""`Identity`: the fastest conversion of small NumPy arrays to JAX, by a compiled function that returns its input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from arrayferry._utilities.cache import Cache, CostlyCache
from arrayferry.typing import Device

from .placement import mesh_is_set, without_mesh

if TYPE_CHECKING:
    import numpy as np

SMALL = 64 * 1024
"""The largest size in bytes of an array for which a compiled identity is the fastest conversion to JAX."""


def owned(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array into memory that nothing else uses, aligned so that JAX need not copy it again."""
    import numpy as np

    if x.nbytes <= SMALL:
        return x.copy()
    memory = np.empty(x.nbytes + 64, np.uint8)
    offset = -memory.ctypes.data % 64
    copy: np.ndarray[Any, Any] = memory[offset : offset + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


MANY = 16
"""If a part of a tree, such as a dict, occurs at least this many times in a row, its occurrences are split into slices.

The number of occurrences in a slice is a power of two. After a whole tree with at most `CHUNK` arrays has been
converted more than `MANY` times, it is converted in one call instead.
"""
CHUNK = 128
"""The maximum number of arrays that a compiled function accepts.

Compiling such a function takes a thirtieth of a second.
"""

Signature = tuple[Any, ...]
"""The key of a compiled function: for each array, a value that identifies its shape and dtype."""


def chunks(signature: Signature) -> Iterator[slice]:
    """Yield slices of a list of arrays. The arrays of a slice are converted together. See `MANY`.

    Because of the slices, few compiled functions are needed for trees of all lengths.
    """
    start = index = 0
    while index < len(signature):
        size, num_repeats = _repeated(signature, index)
        if num_repeats < MANY:
            index += 1
            if index - start == CHUNK:
                yield slice(start, index)
                start = index
            continue
        if start < index:
            yield slice(start, index)
        while num_repeats:
            num_parts = 1 << (min(num_repeats, CHUNK // size).bit_length() - 1)
            yield slice(index, index + num_parts * size)
            index += num_parts * size
            num_repeats -= num_parts
        start = index
    if start < index:
        yield slice(start, index)


def _repeated(signature: Signature, start: int) -> tuple[int, int]:
    """Return the number of arrays in the repeated part that begins at `start`, and how often it occurs in a row.

    Return (1, 1) if no part that begins at `start` occurs at least `MANY` times in a row.
    """
    next_start = start
    while True:
        try:
            next_start = signature.index(signature[start], next_start + 1, start + CHUNK + 1)
        except ValueError:
            return 1, 1
        size, num_repeats = next_start - start, 1
        repeated = signature[start:next_start]
        while signature[start + num_repeats * size : start + (num_repeats + 1) * size] == repeated:
            num_repeats += 1
        if num_repeats >= MANY:
            return size, num_repeats


class Identity:
    """Converts NumPy arrays to JAX on one device, many in one call.

    A compiled identity is the fastest conversion, but JAX compiles it for each combination of shapes and dtypes. So it
    is used from the third time that a combination occurs, and only for small arrays. The number of combinations is
    limited, and so is the number of arrays in each, since a function of thousands of arrays takes seconds to compile.

    Args:
        device: the device that results are committed to. None leaves results uncommitted, on the default device.
    """

    MOST = 512
    """The maximum number of combinations for which a function is compiled."""

    def __init__(self, device: Device = None) -> None:
        self._device = device
        self._commits = device is not None
        self._spreads = False
        self._compilations = 0
        self._programs: CostlyCache[Any, Any] = CostlyCache(self.MOST)
        self._seen: Cache[Any, int] = Cache(4 * self.MOST)

    def __call__(self, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        signature = tuple([(x.shape, x.dtype) for x in xs])
        program = self._programs.get(signature)
        if program is None:
            return self._in_chunks(xs, signature)
        self._programs.used.add(program)
        return self._run(program, xs)

    def one(self, x: np.ndarray[Any, Any]) -> Any:
        """Convert one array. This is faster than converting a list of one array."""
        program = self._programs.get(((x.shape, x.dtype),))
        if program is not None and not self._spreads:
            self._programs.used.add(program)
            try:
                (y,) = program([x.copy()])
                if getattr(y, "committed", self._commits) is self._commits:
                    return y
            except ValueError:  # a mesh is set: `_run` handles it
                pass
        return self([x])[0]

    def _in_chunks(self, xs: list[np.ndarray[Any, Any]], signature: Signature) -> list[Any]:
        """Convert the slices that `chunks` yields. To save time, a call compiles a function for at most one slice."""
        import jax

        slices = list(chunks(signature))
        if len(slices) > 1 and len(xs) <= CHUNK:
            num_calls = self._seen[signature] = self._seen.get(signature, 0) + 1
            if num_calls > MANY:
                slices = [slice(0, len(xs))]
        results: list[Any] = list(xs)
        other_indices: list[int] = []
        num_before = self._compilations
        for chunk_slice in slices:
            chunk = xs[chunk_slice]
            program = self._program(chunk, signature[chunk_slice], self._compilations == num_before)
            if program is None:
                other_indices += range(chunk_slice.start, chunk_slice.stop)
            else:
                results[chunk_slice] = self._run(program, chunk)
        if other_indices:  # jnp.array would compile for each new shape, but device_put does not
            put_arrays = jax.device_put([owned(xs[index]) for index in other_indices], self._device)
            for index, y in zip(other_indices, put_arrays, strict=True):
                results[index] = y
        return results

    def _program(
        self, xs: list[np.ndarray[Any, Any]], signature: Signature, may_compile: bool
    ) -> Any:
        """Return the compiled identity for a combination of shapes and dtypes. Compile it at the third call.

        Return None before the third call, if an array is large, or if it must not be compiled now.
        """
        program = self._programs.get(signature)
        if program is None:
            num_calls = self._seen.get(signature, 0)
            if num_calls < 2:
                self._seen[signature] = num_calls + 1
                return None
            may_compile = may_compile and all(x.nbytes <= SMALL for x in xs)
            if not may_compile or self._programs.make_room(signature) is None:
                return None
            program = self._programs[signature] = self._compiled()
        self._programs.used.add(program)
        return program

    def _compiled(self) -> Any:
        import jax

        self._compilations += 1
        sharding = None if self._device is None else jax.sharding.SingleDeviceSharding(self._device)
        return jax.jit(lambda xs: xs, out_shardings=sharding)

    def _run(self, program: Any, xs: list[np.ndarray[Any, Any]]) -> list[Any]:
        """Call the compiled identity. A set mesh is unset for the call, since it would spread results over devices."""
        if not self._spreads:
            try:
                ys: list[Any] = program([x.copy() for x in xs])
                if getattr(ys[0], "committed", self._commits) is self._commits:
                    return ys
            except ValueError:  # a mesh is set that lacks the device of the results
                if not mesh_is_set():
                    raise
        # to check for a mesh takes time, so check only if results were not as expected
        self._spreads = mesh_is_set()
        with without_mesh():
            return program([x.copy() for x in xs])  # type: ignore[no-any-return]


@cache
def identity(*, committed: bool) -> Identity:
    """Return the `Identity` whose results are committed to the CPU, or are uncommitted."""
    import jax

    return Identity(jax.local_devices(backend="cpu")[0] if committed else None)


@cache
def array_type() -> type:
    """Return the type of JAX arrays that are not traced. Unlike a call of `jnp.zeros`, this compiles nothing."""
    import jax
    import numpy as np

    with jax.ensure_compile_time_eval():
        return type(jax.device_put(np.zeros((), np.float32)))
