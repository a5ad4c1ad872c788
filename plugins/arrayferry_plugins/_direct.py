"""Code that is shared by plugins with direct converters, and by plugins of libraries with CUDA.

Small NumPy arrays of a tree are moved to a GPU together, in one transfer for each dtype instead of one for each array.
Even the smallest transfer takes some microseconds, and a tree may have dozens of arrays.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from arrayferry import ArrayFerryError, Backend, Converter, Options, fit_dtype
from arrayferry.extending import dtype_info
from arrayferry.typing import AnyArray, Cost, Device

if TYPE_CHECKING:
    import numpy as np

SMALL = 1024 * 1024
"""The maximum size in bytes of an array that is moved together with other arrays."""
TOGETHER = 32 * 1024 * 1024
"""The size in bytes above which a batch of arrays is complete. The next array begins a new batch."""
ALIGNMENT = 256
"""The alignment in bytes of each array in the memory of its batch. CUDA aligns allocated memory in the same way."""

Parts = tuple[tuple[int, int, tuple[int, ...]], ...]
"""For each array of a batch: its start and stop in the memory of the batch, in elements, and its shape."""


def cut(flat: Any, parts: Parts) -> list[Any]:
    """Split a one-dimensional array into arrays of the shapes in `parts`."""
    return [flat[start:end].reshape(shape) for start, end, shape in parts]


def is_capturing() -> bool:
    """Return whether PyTorch captures a CUDA graph in this thread. If so, a query of the GPU would end the capture."""
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())


def unless_capturing(done: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that returns False while PyTorch captures a CUDA graph, and otherwise returns `done()`."""
    return lambda: not is_capturing() and done()


class Bound(Converter):
    """A converter whose `convert` calls the function that `bind` returns."""

    def convert(self, x: AnyArray, device: Device = None, copy: bool | None = None) -> Any:
        # `convert` has no argument `narrowing`: leave dtypes that the target lacks to the general path
        bound_convert = self.bind(Options(device=device, copy=copy, narrowing="forbid"))
        return NotImplemented if bound_convert is None else bound_convert(x)


class Packed(Bound):
    """Moves the small arrays of a tree to a GPU in one transfer for each dtype. A single array is not converted."""

    source: str = "numpy"
    cost: Cost = "transfer"
    target_device: str = "cuda"
    types: tuple[str, ...] = ("numpy.ndarray",)
    backend: Backend
    """The backend of the results."""

    @abstractmethod
    def transfer(self, staged: Any, dtype: Any, device: Device) -> Any:
        """Move host memory, as `staging` returns it, to the device. Return a one-dimensional array."""

    def batches(self, group: list[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
        """Split a group of arrays of one dtype into batches to move together.

        A batch ends with the first array that makes it larger than `TOGETHER` bytes. A last batch of one array is
        left out.
        """
        batch: list[tuple[int, Any]] = []
        num_bytes = 0
        for index, x in group:
            batch.append((index, x))
            num_bytes += x.nbytes
            if num_bytes > TOGETHER:
                yield batch
                batch, num_bytes = [], 0
        if len(batch) > 1:
            yield batch

    def splitter(self, dtype: Any, parts: Parts) -> Callable[[Any], list[Any]] | None:
        """Return a function that splits a batch on the device into arrays, or None to move the arrays one by one."""
        return partial(cut, parts=parts)

    def staging(self, size: int, dtype: Any) -> tuple[np.ndarray[Any, Any], Any]:
        """Return host memory of `size` elements twice: as a NumPy array, and as the argument `staged` of `transfer`."""
        import numpy as np

        flat: np.ndarray[Any, Any] = np.empty(size, dtype)
        return flat, flat

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        is_spread = options.device is not None and not self.backend.devices.is_named(options.device)
        return None if is_spread or options.copy is False else lambda x: NotImplemented

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        if options.copy is False:
            return None

        def convert_many(xs: list[Any]) -> list[Any]:
            results: list[Any] = [NotImplemented] * len(xs)
            groups_by_dtype: dict[Any, list[tuple[int, Any]]] = {}
            for index, x in enumerate(xs):
                fitting_array = self._fitting(x, options)
                if fitting_array is not None:
                    dtype = fitting_array.dtype.newbyteorder("=")
                    groups_by_dtype.setdefault(dtype, []).append((index, fitting_array))
            for dtype, group in groups_by_dtype.items():
                for batch in self.batches(group):
                    converted = self._together([x for _, x in batch], dtype, options.device)
                    for (index, _), y in zip(batch, converted, strict=True):
                        results[index] = y
            return results

        return convert_many

    def _fitting(self, x: AnyArray, options: Options) -> Any:
        """Return the array in a dtype of the target. Return None if there is no such dtype, or the array is large."""
        if x.nbytes > SMALL or not dtype_info(x.dtype).kind:
            return None
        try:
            return fit_dtype(x, self.backend, options.narrowing)
        except ArrayFerryError:
            # the general path raises this error again, and adds the path of the array in the tree
            return None

    def _together(self, xs: list[Any], dtype: Any, device: Device) -> list[Any]:
        import numpy as np

        aligned_size = max(1, ALIGNMENT // dtype.itemsize)
        spans, size = [], 0
        for x in xs:
            spans.append((size, size + x.size, x.shape))
            size += -(-x.size // aligned_size) * aligned_size
        parts = tuple(spans)
        split = self.splitter(dtype, parts)
        if split is None:
            return [NotImplemented] * len(xs)
        host_array, staged = self.staging(size, dtype)
        for x, target in zip(xs, cut(host_array, parts), strict=True):
            np.copyto(target, x)
        return split(self.transfer(staged, dtype, device))
