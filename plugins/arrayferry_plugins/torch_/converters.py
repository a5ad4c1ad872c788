"""Direct converters between PyTorch and host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from arrayferry import Backend, Inline, Options
from arrayferry.typing import AnyArray, Cost, Device
from arrayferry_plugins._direct import Bound, Packed

from .backend import BACKEND
from .dtypes import numpy_dtypes

if TYPE_CHECKING:
    import numpy as np


FIRST = 1 << 16
"""The lowest possible address. A tensor with a lower one has freed storage, or none yet."""


@cache
def _recorder() -> Any:
    """Return the object whose attribute says whether torch.fx is recording. It is not public, so it may be missing."""
    from torch.fx import _symbolic_trace as fx

    return fx if hasattr(fx, "_is_fx_tracing_flag") else SimpleNamespace(_is_fx_tracing_flag=False)


def _view() -> Callable[[Any], Any]:
    """Return a function that views an ordinary CPU tensor as a NumPy array, and raises for any other."""
    from torch import Tensor

    view, address, fx = Tensor.numpy, Tensor.data_ptr, _recorder()

    def values(x: AnyArray) -> Any:
        if fx._is_fx_tracing_flag or address(x) < FIRST:
            raise ValueError  # the general path is tried next, and raises the error
        return view(x)

    return values


def host_values() -> Callable[[Any], Any]:
    """Return a function that reads the values of a CPU tensor, as a view if possible.

    The function is fastest for ordinary tensors, and raises for tensors that are not on the CPU.
    """
    view, general = _view(), BACKEND.to_numpy

    def values(x: AnyArray) -> Any:
        try:
            return view(x)
        except Exception:
            if not x.is_cpu:
                raise
        return general(x)

    return values


@cache
def _from_numpy() -> tuple[Callable[[Any], Any], str]:
    """Return PyTorch's `from_numpy`, and the condition under which it is safe, or "" if it always is.

    Before 2.13, it may crash when it divides by the size of an item, which is zero for the dtype V0.
    """
    import torch

    take = torch.from_numpy
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
        return take, ""
    return lambda x: take(x) if x.itemsize else NotImplemented, "{x}.itemsize"


class NumpyToTorch(Bound):
    """Shares the memory of aligned, writable arrays; PyTorch raises for strides that it does not support."""

    source: str = "numpy"
    target: str = "torch"
    cost: Cost = "share"
    types: tuple[str, ...] = ("numpy.ndarray",)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        from_numpy, _ = _from_numpy()
        if options.copy:
            return lambda x: from_numpy(x.copy())
        if options.copy is False:
            return lambda x: from_numpy(x) if x.flags.behaved else NotImplemented
        # memory that cannot be shared, such as read-only memory, is copied
        return lambda x: from_numpy(
            x if x.flags.behaved and min(x.strides, default=0) >= 0 else x.copy()
        )

    def inline(self, options: Options) -> Inline:
        from torch import from_numpy

        _, safe = _from_numpy()
        if options.copy:
            return Inline(safe, "{take}({x}.copy())", {"take": from_numpy})
        test = "{x}.flags.behaved" + (f" and {safe}" if safe else "")
        return Inline(test, "{take}({x})", {"take": from_numpy})


class TorchToNumpy(Bound):
    """Shares the memory of strided CPU tensors, without their gradient."""

    source: str = "torch"
    target: str = "numpy"
    cost: Cost = "share"
    types: tuple[str, ...] = ("torch.Tensor",)

    def bind(self, options: Options) -> Callable[[Any], Any]:
        view, general, extra = _view(), BACKEND.to_numpy, numpy_dtypes()

        def values(x: AnyArray) -> Any:
            # these checks take less time than an error of view()
            if x.requires_grad or x.dtype in extra or x.is_conj() or x.is_neg():
                return general(x) if x.is_cpu else NotImplemented
            return view(x)

        if options.copy is False:
            return view
        return (lambda x: _copied(values(x))) if options.copy else values

    def inline(self, options: Options) -> Inline:
        from torch import Tensor

        result = "{show}({x}).copy()" if options.copy else "{show}({x})"
        names = {"show": Tensor.numpy, "address": Tensor.data_ptr, "fx": _recorder()}
        test = f"not {{fx}}._is_fx_tracing_flag and {{address}}({{x}}) >= {FIRST}"
        return Inline(test, result, names)


class NumpyToCuda(Packed):
    """Moves the small arrays of a tree to a GPU in one transfer for each dtype, from pinned memory."""

    target = "torch"
    backend: Backend = BACKEND

    def staging(self, size: int, dtype: Any) -> tuple[np.ndarray[Any, Any], Any]:
        import torch

        flat = torch.empty(size * dtype.itemsize, dtype=torch.uint8, pin_memory=True, device="cpu")
        return flat.numpy().view(dtype), flat

    def transfer(self, staged: Any, dtype: Any, device: Device) -> Any:
        import torch

        return staged.to(device, non_blocking=True).view(getattr(torch, dtype.name))


def _copied(n: Any) -> Any:
    return n if n is NotImplemented else n.copy()
