"""Trees of small NumPy arrays that go to a GPU together: one transfer for each dtype, not one for each array.

A transfer takes some microseconds however little it moves, and a tree may have dozens of arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from arrayferry import ArrayFerryError, Backend, Converter, Options, fit_dtype
from arrayferry.adapting import dtype_info

if TYPE_CHECKING:
    import numpy as np

    from arrayferry.typing import Cost

__all__ = ["Packed", "Part", "cut"]

SMALL = 1024 * 1024
"""Size in bytes up to which arrays go together."""
TOGETHER = 32 * 1024 * 1024
"""Size in bytes above which no more arrays are added to those that go together."""
ALIGNMENT = 256
"""The addresses of the arrays are multiples of this, like those of arrays that CUDA allocates."""


class Part(NamedTuple):
    """Where an array lies in the common memory, in items."""

    start: int
    end: int
    shape: tuple[int, ...]


def _batches(group: list[tuple[int, Any]]) -> Iterator[list[tuple[int, Any]]]:
    """Yield arrays of one dtype that go together: several of them, and not too much memory at once."""
    some: list[tuple[int, Any]] = []
    size = 0
    for index, x in group:
        some.append((index, x))
        size += x.nbytes
        if size > TOGETHER:
            yield some
            some, size = [], 0
    if len(some) > 1:
        yield some


def cut(flat: Any, parts: tuple[Part, ...]) -> list[Any]:
    """Return parts of a one-dimensional array, in their shapes."""
    return [flat[part.start : part.end].reshape(part.shape) for part in parts]


class Packed(Converter):
    """Brings the small arrays of a tree to a GPU in one transfer for each dtype. It leaves single ones alone."""

    source: str = "numpy"
    cost: Cost = "transfer"
    target_device: str = "cuda"
    types: tuple[str, ...] = ("numpy.ndarray",)

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """The backend of the results."""

    @abstractmethod
    def transfer(self, staged: Any, dtype: Any, device: Any) -> Any:
        """Bring memory of the host, made by `staging`, to the device as a one-dimensional array."""

    def split(self, flat: Any, parts: tuple[Part, ...]) -> list[Any]:
        """Return the parts of an array on the device: views, unless this is overridden."""
        return cut(flat, parts)

    def is_worth_it(self, dtype: Any, parts: tuple[Part, ...]) -> bool:
        """Tell whether it is worth bringing arrays with these places together."""
        return True

    def staging(self, size: int, dtype: Any) -> tuple[np.ndarray[Any, Any], Any]:
        """Return memory of the host as a NumPy array, and what `transfer` takes."""
        import numpy as np

        flat: np.ndarray[Any, Any] = np.empty(size, dtype)
        return flat, flat

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        return NotImplemented

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        several = options.device is not None and not self.backend.is_named(options.device)
        return None if several or options.copy is False else lambda x: NotImplemented

    def bind_many(self, options: Options) -> Callable[[list[Any]], list[Any]] | None:
        if options.copy is False:
            return None

        def many(xs: list[Any]) -> list[Any]:
            results: list[Any] = [NotImplemented] * len(xs)
            groups: dict[Any, list[tuple[int, Any]]] = {}
            for index, x in enumerate(xs):
                fitting = self._fitting(x, options)
                if fitting is not None:
                    dtype = fitting.dtype.newbyteorder("=")
                    groups.setdefault(dtype, []).append((index, fitting))
            for dtype, group in groups.items():
                for some in _batches(group):
                    converted = self._together([x for _, x in some], dtype, options.device)
                    for (index, _), y in zip(some, converted, strict=True):
                        results[index] = y
            return results

        return many

    def _fitting(self, x: Any, options: Options) -> Any:
        """Return an array of a dtype that the target has, None for one that goes alone."""
        if x.nbytes > SMALL or not dtype_info(x.dtype).kind:
            return None
        try:
            return fit_dtype(x, self.backend, options.narrowing)
        except ArrayFerryError:  # raised again where its place in the tree is known
            return None

    def _together(self, xs: list[Any], dtype: Any, device: Any) -> list[Any]:
        import numpy as np

        step = max(1, ALIGNMENT // dtype.itemsize)
        parts, size = [], 0
        for x in xs:
            parts.append(Part(size, size + x.size, x.shape))
            size += -(-x.size // step) * step
        if not self.is_worth_it(dtype, tuple(parts)):
            return [NotImplemented] * len(xs)
        host, staged = self.staging(size, dtype)
        for x, part in zip(xs, parts, strict=True):
            np.copyto(host[part.start : part.end].reshape(part.shape), x)
        return self.split(self.transfer(staged, dtype, device), tuple(parts))
