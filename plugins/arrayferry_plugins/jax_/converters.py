"""Direct converters between JAX and other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from arrayferry import Backend, Inline, Options, fit_dtype
from arrayferry._utilities.cache import Cache, CostlyCache
from arrayferry.typing import AnyArray, Cost, Device
from arrayferry_plugins._direct import Bound, Packed, Parts, cut

from .backend import BACKEND
from .dtypes import native_dtypes
from .identity import Identity, array_type, chunks, identity
from .placement import own_device, put


class NumpyToJax(Bound):
    """Copies NumPy arrays into JAX, with one call for all small arrays of a tree."""

    source: str = "numpy"
    target: str = "jax"
    cost: Cost = "copy"
    types: tuple[str, ...] = ("numpy.ndarray",)

    def view(self) -> Callable[[Any], Any]:
        """Return a function that returns a NumPy view of an array, or a copy if a view is not possible.

        The function raises an error for an array that is not in host memory.
        """
        return lambda x: x

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        return self._bound(options, alone=True)

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        return self._bound(options)

    def _bound(self, options: Options, *, alone: bool = False) -> Callable[[Any], Any] | None:
        """Return a function that converts one array if `alone`, or otherwise a list of arrays.

        Return None if a copy is not allowed, or if the target or JAX's default backend is not the CPU.
        """
        import jax

        to_host = options.device is None or options.device == "cpu"
        if options.copy is False or not to_host or jax.default_backend() != "cpu":
            return None
        as_numpy, config = self.view(), jax.config
        to_jax = identity(committed=options.device is not None)
        narrow_dtypes, wide_dtypes, cls = native_dtypes(False), native_dtypes(True), array_type()

        def convert_many(xs: list[Any]) -> list[Any]:
            arrays = [as_numpy(x) for x in xs]
            dtypes = wide_dtypes if config.jax_enable_x64 else narrow_dtypes
            for index, array in enumerate(arrays):
                if array.dtype not in dtypes:
                    array = arrays[index] = fit_dtype(array, BACKEND, options.narrowing)
                    if array.dtype not in dtypes:
                        arrays[index] = array.astype(array.dtype.newbyteorder("="))
            if config.jax_debug_nans or config.jax_debug_infs:
                raise RuntimeError(
                    "jax_debug_nans or jax_debug_infs is set, so compiled code may raise"
                )
            results = to_jax(arrays)
            if type(results[0]) is not cls:
                raise RuntimeError(
                    "results are not concrete: in a traced function, or compilation is disabled"
                )
            return results

        def convert_one(x: AnyArray) -> Any:  # same result as convert_many([x])[0], but faster
            array = as_numpy(x)
            dtypes = wide_dtypes if config.jax_enable_x64 else narrow_dtypes
            if array.dtype in dtypes and not (config.jax_debug_nans or config.jax_debug_infs):
                y = to_jax.one(array)
                if type(y) is cls:
                    return y
            return convert_many([x])[0]

        return convert_one if alone else convert_many


class NumpyToGpu(Packed):
    """Moves the small arrays of a tree to a GPU in one transfer for each dtype, where a compiled function splits them.

    JAX compiles that function for each combination of shapes and dtypes. So the function is used only from the second
    time that a combination occurs. The number of combinations is limited, and so is the number of arrays in each.
    """

    target = "jax"
    backend: Backend = BACKEND

    def __init__(self) -> None:
        self._seen: Cache[Any, None] = Cache(4 * Identity.MOST)
        self._programs: CostlyCache[Any, Any] = CostlyCache(Identity.MOST)

    def transfer(self, staged: Any, dtype: Any, device: Device) -> Any:
        return staged if device is None else put(staged, own_device(device))

    def batches(self, group: list[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
        for batch_slice in chunks(tuple(x.shape for _, x in group)):
            yield from super().batches(group[batch_slice])

    def splitter(self, dtype: Any, parts: Parts) -> Callable[[Any], list[Any]] | None:
        import jax

        # with these settings, compiled code raises for NaN or infinity in the arrays
        if jax.config.jax_debug_nans or jax.config.jax_debug_infs:
            return None
        program_key = parts, dtype
        program = self._programs.get(program_key)
        if program is None:
            if program_key not in self._seen:
                self._seen[program_key] = None
                return None
            if self._programs.make_room(program_key) is None:
                return None
            program = self._programs[program_key] = jax.jit(partial(cut, parts=parts))
        self._programs.used.add(program)

        def split(flat: Any) -> list[Any]:
            ys: list[Any] = program(flat)
            if type(ys[0]) is not array_type():
                raise RuntimeError(
                    "results are not concrete: in a traced function, or compilation is disabled"
                )
            return ys

        return split


class TorchToJax(NumpyToJax):
    """Copies PyTorch tensors on the CPU into JAX."""

    source: str = "torch"
    types: tuple[str, ...] = ("torch.Tensor",)

    def view(self) -> Callable[[Any], Any]:
        from arrayferry_plugins.torch_.converters import host_values

        return host_values()


class JaxToNumpy(Bound):
    """Returns a read-only NumPy view of a JAX array."""

    source: str = "jax"
    target: str = "numpy"
    cost: Cost = "share"
    types: tuple[str, ...] = ("jax._src.array.ArrayImpl",)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        import numpy as np

        if options.copy is False:
            return None
        return np.array if options.copy else np.asarray

    def inline(self, options: Options) -> Inline | None:
        convert = self.bind(options)
        return None if convert is None else Inline("", "{show}({x})", {"show": convert})


class JaxToTorch(Bound):
    """Copies JAX arrays to PyTorch. They cannot be shared, since PyTorch has no read-only tensors."""

    source: str = "jax"
    target: str = "torch"
    cost: Cost = "copy"
    types: tuple[str, ...] = ("jax._src.array.ArrayImpl",)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        import jax
        from numpy import array
        from torch import from_numpy

        if options.copy is False or jax.default_backend() != "cpu":
            return None
        from arrayferry_plugins.torch_.backend import BACKEND as TORCH

        def copy_to_torch(x: AnyArray) -> Any:
            numpy_copy = array(x)
            try:
                return from_numpy(numpy_copy)
            except TypeError:  # torch.from_numpy lacks some dtypes, such as bfloat16
                return TORCH.from_numpy(numpy_copy)

        return copy_to_torch

    def inline(self, options: Options) -> Inline | None:
        if self.bind(options) is None:
            return None
        from numpy import array
        from torch import from_numpy

        return Inline("", "{take}({copy}({x}))", {"take": from_numpy, "copy": array})
