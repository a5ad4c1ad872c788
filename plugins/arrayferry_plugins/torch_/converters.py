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
"""The lowest address that memory can have. A tensor with a lower address has a storage that was freed, or never
allocated.
"""


@cache
def _recorder() -> Any:
    """Return an object whose attribute `_is_fx_tracing_flag` is True while torch.fx records a function.

    The attribute of PyTorch is not public. If it is missing, return an object for which the attribute is False.
    """
    from torch.fx import _symbolic_trace as fx

    return fx if hasattr(fx, "_is_fx_tracing_flag") else SimpleNamespace(_is_fx_tracing_flag=False)


def _view() -> Callable[[Any], Any]:
    """Return a function that returns an ordinary CPU tensor as a NumPy view, and raises an error for other tensors."""
    from torch import Tensor

    view_of, address_of, recorder = Tensor.numpy, Tensor.data_ptr, _recorder()

    def safe_view(x: AnyArray) -> Any:
        if recorder._is_fx_tracing_flag or address_of(x) < FIRST:
            raise ValueError  # then the general path is used, which raises an error with a remedy
        return view_of(x)

    return safe_view


def host_values() -> Callable[[Any], Any]:
    """Return a function that returns a NumPy view of a CPU tensor, or a copy if a view is not possible.

    The function is fastest for ordinary tensors. It raises an error for tensors that are not on the CPU.
    """
    safe_view, to_numpy = _view(), BACKEND.to_numpy

    def view_or_copy(x: AnyArray) -> Any:
        try:
            return safe_view(x)
        except Exception:
            if not x.is_cpu:
                raise
        return to_numpy(x)

    return view_or_copy


@cache
def _from_numpy() -> tuple[Callable[[Any], Any], str]:
    """Return a safe version of `torch.from_numpy`, and the condition under which `inline` may use the original.

    Before PyTorch 2.13, the original may crash for the dtype V0, since it divides by the item size, which is 0. Since
    2.13, the original is safe, and the condition is "".
    """
    import torch

    from_numpy = torch.from_numpy
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
        return from_numpy, ""
    return lambda x: from_numpy(x) if x.itemsize else NotImplemented, "{x}.itemsize"


class NumpyToTorch(Bound):
    """Shares the memory of NumPy arrays that are aligned and writable. Other arrays are copied unless `copy=False`."""

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
        # copy read-only or unaligned arrays, and those with negative strides: they cannot be shared
        return lambda x: from_numpy(
            x if x.flags.behaved and min(x.strides, default=0) >= 0 else x.copy()
        )

    def inline(self, options: Options) -> Inline:
        from torch import from_numpy

        _, condition = _from_numpy()
        if options.copy:
            return Inline(condition, "{take}({x}.copy())", {"take": from_numpy})
        condition_text = "{x}.flags.behaved" + (f" and {condition}" if condition else "")
        return Inline(condition_text, "{take}({x})", {"take": from_numpy})


class TorchToNumpy(Bound):
    """Returns a NumPy view of a strided CPU tensor, without its gradient."""

    source: str = "torch"
    target: str = "numpy"
    cost: Cost = "share"
    types: tuple[str, ...] = ("torch.Tensor",)

    def bind(self, options: Options) -> Callable[[Any], Any]:
        safe_view, to_numpy, extra_dtypes = _view(), BACKEND.to_numpy, numpy_dtypes()

        def view_tensor(x: AnyArray) -> Any:
            # safe_view() would raise an error for these tensors, which takes more time than the checks
            if x.requires_grad or x.dtype in extra_dtypes or x.is_conj() or x.is_neg():
                return to_numpy(x) if x.is_cpu else NotImplemented
            return safe_view(x)

        if options.copy is False:
            return safe_view
        return (lambda x: _copied(view_tensor(x))) if options.copy else view_tensor

    def inline(self, options: Options) -> Inline:
        from torch import Tensor

        code = "{show}({x}).copy()" if options.copy else "{show}({x})"
        code_names = {"show": Tensor.numpy, "address": Tensor.data_ptr, "fx": _recorder()}
        condition = f"not {{fx}}._is_fx_tracing_flag and {{address}}({{x}}) >= {FIRST}"
        return Inline(condition, code, code_names)


class NumpyToCuda(Packed):
    """Moves the small arrays of a tree to a GPU, from pinned memory in one transfer for each dtype."""

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
