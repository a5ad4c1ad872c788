"""`Library`: the operations of an array library that the rules use.

The class itself uses the Array API. Its subclasses for NumPy and PyTorch call the library's own functions, which
are faster.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from arrayferry import Backend, namespace_of
from arrayferry.extending import dtype_named, kept_conversion
from arrayferry.typing import AnyArray, AnyTree, Device

if TYPE_CHECKING:
    import numpy as np


Dims = tuple[int, ...]
dtype_of: Callable[[str], Any] = dtype_named
"""Returns the dtype of NumPy or `ml_dtypes` with this name. There must be such a dtype."""


class Library:
    """The operations of a library, computed by its Array API namespace `xp`.

    Args:
        backend: the library.
        device: the device of the arrays that are made.
    """

    wider: Mapping[str, str] = MappingProxyType({})
    """Maps each dtype that few operations of the library support to a wider dtype that is used instead."""
    records = False
    """Whether the library records operations instead of computing them, so that arrays have no values."""
    native: Any = None
    """The library's own namespace, whose element-wise functions have less overhead than the Array API's."""

    def __init__(self, backend: Backend, device: Device) -> None:
        import numpy as np

        self.backend = backend
        self._conversion = kept_conversion(backend, device, copy=True)
        self.xp = namespace_of(self._conversion(np.zeros(1, "float32")))

    def function(self, name: str) -> Callable[..., Any]:
        """Return an element-wise function of the Array API.

        Raises:
            NotImplementedError: the library lacks the function.
        """
        function = getattr(self.native, name, None) or getattr(self.xp, name, None)
        if function is None:
            raise NotImplementedError(f"{self.backend.name} has no {name}")
        return function  # type: ignore[no-any-return]

    def dtype(self, name: str) -> Any:
        """Return the dtype in which this library stores values of the dtype `name`."""
        name = self.wider.get(name, name)
        if self.backend.name == "jax":  # JAX would warn about a 64-bit dtype that is disabled
            name = sys.modules["jax"].dtypes.canonicalize_dtype(name).name
        try:
            return getattr(self.xp, name)
        except AttributeError:
            raise NotImplementedError(f"{self.backend.name} has no {name}") from None

    def constant(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a NumPy array as an array of the library."""
        name = array.dtype.name
        return self._conversion(array.astype(self.wider[name]) if name in self.wider else array)

    def indices(self, *shape: int, of: int) -> Any:
        """Return the array 0, 1, 2 ... along the axis `of` of `shape`. All its other axes have length 1."""
        import numpy as np

        return self.constant(np.indices(shape, sparse=True)[of])

    def cast(self, x: AnyArray, name: str) -> Any:
        """Cast an array to the dtype in which this library stores values of the dtype `name`.

        The results for values that are out of range differ between libraries.
        """
        return self.xp.astype(x, self.dtype(name), copy=False)

    def result(self, x: AnyArray, name: str, *, owned: bool) -> Any:
        """Return a result of a program in the dtype `name`. Copy it, unless nothing else uses its memory (`owned`)."""
        return self.xp.asarray(x, dtype=getattr(self.xp, name), copy=None if owned else True)

    def wrapped(self, x: AnyArray, name: str) -> Any:
        """Wrap integers into the range of the dtype `name`, if the library stores them in a wider dtype."""
        return x & (2 ** (8 * dtype_of(name).itemsize) - 1) if name in self.wider else x

    def full(self, shape: tuple[int, ...], value: AnyTree, name: str) -> Any:
        """Return an array that is filled with one value."""
        import numpy as np

        return self.constant(np.full(shape, value, dtype_of(name)))

    def take(self, x: AnyArray, indices: AnyArray) -> Any:
        """Return the elements of the flattened array at these indices, in the shape of the indices."""
        taken = self.xp.take(self.xp.reshape(x, (-1,)), self.xp.reshape(indices, (-1,)), axis=0)
        return self.xp.reshape(taken, indices.shape)

    def put(self, x: AnyArray, indices: AnyArray, updates: AnyTree, how: str) -> Any:
        """Return an array with some elements replaced, or combined with updates by a function.

        Args:
            x: the array, with one dimension.
            indices: the indices of the elements, with one dimension.
            updates: a value for each index.
            how: "set" to replace, or the function that combines: "add", "multiply", "minimum" or "maximum".
        """
        import numpy as np

        x, indices, updates = map(self.backend.to_numpy, (x, indices, updates))
        return self.constant(_put(np, x, indices, updates, how))

    def bitcast(self, x: AnyArray, old: str, new: str) -> Any:
        """Reinterpret the bits of an array in another dtype of the same size."""
        import numpy as np

        bits = self.backend.to_numpy(x).astype(dtype_of(old))
        return self.constant(np.ascontiguousarray(bits).view(dtype_of(new)))

    def matmul(self, x: AnyArray, y: AnyArray) -> Any:
        """Return the products of two batches of matrices. Matrices of integers or bools are valid too."""
        return self.xp.matmul(x, y)

    def windows(
        self, x: AnyArray, counts: Dims, sizes: Dims, strides: Dims, dilations: Dims
    ) -> Any:
        """Return the elements of windows that slide over all axes except the first two.

        In the result, indices along these axes select a window. Further axes at the end contain the window's elements.

        Args:
            x: the array.
            counts: for each axis except the first two, the number of windows.
            sizes: for each of these axes, the number of elements of a window.
            strides: for each of these axes, the distance between neighbouring windows.
            dilations: for each of these axes, the distance between neighbouring elements of a window.
        """
        axis_windows = zip(counts, sizes, strides, dilations, strict=True)
        for axis, (count, size, stride, dilation) in enumerate(axis_windows, 2):
            span = (count - 1) * stride + 1
            starts = range(0, size * dilation, dilation)
            indices = ((*(slice(None),) * axis, slice(n, n + span, stride), ...) for n in starts)
            x = self.xp.stack([x[index] for index in indices], axis=-1)
        return x

    def convolution(self, name: str, dtype: str) -> Callable[..., Any] | None:
        """Return the library's own convolution for a dtype, or None if the library has none.

        `name` is the name of a function of PyTorch, such as "conv2d". The returned function accepts its arguments.
        """
        return None

    def special(self, name: str) -> Callable[..., Any]:
        """Return a special function, such as `erf`, which the Array API lacks.

        Raises:
            NotImplementedError: the library lacks the function.
        """
        raise NotImplementedError(f"{self.backend.name} has no {name}")

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which values such as NaN cause no warnings, and no gradients are recorded."""
        import numpy as np

        return np.errstate(all="ignore")  # many libraries call NumPy, which warns about NaN


class NumpyLibrary(Library):
    """The operations of NumPy or CuPy."""

    def __init__(self, backend: Backend, device: Device) -> None:
        super().__init__(backend, device)
        self.native = __import__(backend.name)

    def dtype(self, name: str) -> Any:
        return dtype_of(name)

    def cast(self, x: AnyArray, name: str) -> Any:
        return self.native.asarray(x, dtype=dtype_of(name))

    def result(self, x: AnyArray, name: str, *, owned: bool) -> Any:
        return self.native.asarray(x) if owned else self.native.array(x)

    def put(self, x: AnyArray, indices: AnyArray, updates: AnyTree, how: str) -> Any:
        return _put(self.native, x, indices, updates, how)

    def matmul(self, x: AnyArray, y: AnyArray) -> Any:
        return self.native.asarray(self.native.matmul(x, y), dtype=x.dtype)

    def windows(
        self, x: AnyArray, counts: Dims, sizes: Dims, strides: Dims, dilations: Dims
    ) -> Any:
        spans = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
        window_view = self.native.lib.stride_tricks.sliding_window_view(x, spans, range(2, x.ndim))
        step_slices = (slice(None, None, step) for step in (1, 1, *strides, *dilations))
        return window_view[tuple(step_slices)]

    def convolution(self, name: str, dtype: str) -> Callable[..., Any] | None:
        return partial(_spread, self.native) if "transpose" in name else None

    def bitcast(self, x: AnyArray, old: str, new: str) -> Any:
        return self.native.ascontiguousarray(x).view(dtype_of(new)).reshape(x.shape)

    def special(self, name: str) -> Callable[..., Any]:
        package = {"numpy": "scipy", "cupy": "cupyx.scipy"}[self.backend.name]
        try:
            return getattr(__import__(f"{package}.special", fromlist=[name]), name)  # type: ignore[no-any-return]
        except ImportError:
            raise NotImplementedError(f"{name} needs SciPy: pip install scipy") from None


def _spread(
    np: Any, x: AnyArray, kernel: Any, bias: None, strides: Dims, cut: Dims, more: Dims, groups: int, dilations: Dims
) -> Any:  # fmt: skip
    """Compute PyTorch's transposed convolution: the sum of shifted copies of the kernel, one per element of `x`.

    Each copy is multiplied by its element.
    """
    batch_size, _, *lengths = x.shape
    _, features, *sizes = kernel.shape
    x = x.reshape(batch_size, groups, -1, math.prod(lengths))
    kernel = kernel.reshape(groups, x.shape[2], -1).swapaxes(1, 2)
    copies = np.matmul(kernel, x).reshape(batch_size, groups * features, *sizes, *lengths)
    spans = [(n - 1) * stride + 1 for n, stride in zip(lengths, strides, strict=True)]
    params = zip(spans, sizes, dilations, more, strict=True)
    full_lengths = [span + (size - 1) * step + extra for span, size, step, extra in params]
    summed = np.zeros((batch_size, groups * features, *full_lengths), x.dtype)
    for kernel_index in np.ndindex(*sizes):
        starts = [n * step for n, step in zip(kernel_index, dilations, strict=True)]
        part = (slice(n, n + span, by) for n, span, by in zip(starts, spans, strides, strict=True))
        summed[:, :, *part] += copies[:, :, *kernel_index]
    return summed[:, :, *(slice(n, end - n) for n, end in zip(cut, full_lengths, strict=True))]


def _put(np: Any, x: AnyArray, indices: AnyArray, updates: AnyTree, how: str) -> Any:
    x = np.array(x)
    if how == "set":
        x[indices] = updates
    else:
        getattr(np, how).at(x, indices, updates)
    return x


class TorchLibrary(Library):
    """The operations of PyTorch. Few support uint16 and uint32, so wider signed dtypes store such integers."""

    wider = MappingProxyType({"uint16": "int32", "uint32": "int64"})

    def __init__(self, backend: Backend, device: Device) -> None:
        import torch

        super().__init__(backend, device)
        self.native = torch

    def dtype(self, name: str) -> Any:
        if name == "uint64":
            raise NotImplementedError("PyTorch has no operations on uint64")
        return getattr(self.native, self.wider.get(name, name))

    def cast(self, x: AnyArray, name: str) -> Any:
        return x.to(self.dtype(name))

    def result(self, x: AnyArray, name: str, *, owned: bool) -> Any:
        if name in self.wider:
            return x.to(getattr(self.native, name))
        return x if owned else x.clone(memory_format=self.native.contiguous_format)

    def take(self, x: AnyArray, indices: AnyArray) -> Any:
        return self.native.take(x, indices)

    def put(self, x: AnyArray, indices: AnyArray, updates: AnyTree, how: str) -> Any:
        if how in ("set", "add"):
            return x.index_put((indices,), updates, accumulate=how == "add")
        reduction_name = {"multiply": "prod", "minimum": "amin", "maximum": "amax"}[how]
        return x.scatter_reduce(0, indices, updates, reduction_name)

    def matmul(self, x: AnyArray, y: AnyArray) -> Any:
        if x.dtype == self.native.bool or not (x.is_cpu or x.is_floating_point() or x.is_complex()):
            return (x[..., None] * y[..., None, :, :]).sum(
                -2, dtype=x.dtype
            )  # PyTorch has no matmul for bools, nor for integers on a GPU
        return self.native.matmul(x, y)

    def convolution(self, name: str, dtype: str) -> Callable[..., Any] | None:
        return getattr(self.native, name, None) if "float" in dtype else None

    def bitcast(self, x: AnyArray, old: str, new: str) -> Any:
        if old in self.wider:
            x = x.to(getattr(self.native, old.removeprefix("u")))
        bits = x.view(getattr(self.native, new.removeprefix("u") if new in self.wider else new))
        return self.wrapped(bits.to(self.dtype(new)), new)

    def special(self, name: str) -> Callable[..., Any]:
        return getattr(self.native.special, name.replace("psi", "digamma"))  # type: ignore[no-any-return]

    def quiet(self) -> contextlib.AbstractContextManager[Any]:
        return self.native.no_grad()  # type: ignore[no-any-return]
