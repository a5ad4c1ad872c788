"""Tensors that cannot be converted like ordinary tensors, such as read-only, traced, sparse and quantised tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from arrayferry import ArrayFerryError, TracedValueError
from arrayferry.extending import describe_error
from arrayferry.typing import AnyArray
from arrayferry_plugins._sources import refused

from .dtypes import dtype_names


def plain(x: AnyArray) -> Any:
    """Return a tensor unchanged, but a `ReadOnlyTensorWrapper`, which supports only DLPack, as an ordinary tensor."""
    import torch

    wrapper = getattr(sys.modules.get("torch.utils.dlpack"), "ReadOnlyTensorWrapper", ())
    if not isinstance(x, wrapper):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of PyTorch means that memory ran out."""
    import torch

    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def traced() -> TracedValueError:
    """Return the error for a tensor that has no values, or whose values cannot be read here."""
    return TracedValueError(
        "a traced tensor has no values yet",
        remedy="Convert outside the transformed or recorded function, or the FakeTensorMode.",
    )


@contextmanager
def explaining_errors(x: AnyArray) -> Iterator[None]:
    """In this context, replace errors of a `FakeTensorMode` or of a composite tensor by errors with a remedy.

    A composite tensor consists of other tensors. An example is a `DTensor`.
    """
    import torch

    try:
        yield
    except Exception as error:
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            raise traced() from error
        cls = type(x)
        is_ordinary = cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        if is_ordinary or isinstance(error, ArrayFerryError) or is_out_of_memory(error):
            raise
        names = ("full_tensor", "dequantize", "to_dense", "to_tensor")
        methods = (n for n in names if getattr(cls, n, None) is not getattr(torch.Tensor, n, None))
        method = next(methods, None)
        first_call = f"x.{method}()" if method else "the method that returns an ordinary tensor"
        noun = f"a {cls.__module__}.{cls.__qualname__}, which consists of other tensors,"
        raise refused(noun, first_call, why=f" ({describe_error(error)})") from error


def refuse(x: AnyArray) -> None:
    """Raise an error for a tensor that does not have its values in strided memory, or whose dtype only PyTorch has."""
    import torch

    if hasattr(x, "_masked_data"):  # a torch.masked.MaskedTensor
        noun, first_call = "a masked tensor, whose mask would be lost,", "x.to_tensor(value)"
    elif torch.nn.parameter.is_lazy(x):
        noun, first_call = "an uninitialized parameter", "the module of the parameter with an input"
    elif x.is_nested:
        noun, first_call = "a nested tensor", "x.unbind() or torch.nested.to_padded_tensor(x, 0.0)"
    elif is_sparse(x):
        noun, first_call = "a sparse tensor", "x.to_dense()"
    elif x.is_mkldnn:
        noun, first_call = "an MKL-DNN tensor", "x.to_dense()"
    elif x.is_quantized:
        noun, first_call = "a quantised tensor", "x.dequantize()"
    elif x.is_meta:
        noun = "a meta tensor, which has no values,"
        first_call = "x.to_empty(device='cpu'), and fill the result"
    elif freed(x):
        noun = "a tensor whose storage was freed"
        first_call = "the method that allocates the storage again, such as unshard()"
    elif str(x.dtype).removeprefix("torch.") not in dtype_names():
        view_call = "x.view(torch.uint8), which returns the bytes"
        first_call = "x.to(torch.complex64)" if x.dtype.is_complex else view_call
        noun, reason = f"a tensor of dtype {x.dtype}", ", since no other library has that dtype"
        remedy = f'First call {first_call}, or pass unsupported="keep".'
        raise refused(noun, dtype=x.dtype, why=reason, remedy=remedy)
    else:
        return
    raise refused(noun, first_call)


def is_sparse(x: AnyArray) -> bool:
    """Return whether a tensor has a sparse layout."""
    return str(x.layout).startswith("torch.sparse_")


def freed(x: AnyArray) -> bool:
    """Return whether a tensor is larger than its storage, for example after `untyped_storage().resize_(0)`."""
    import torch

    if x.layout is not torch.strided or x.is_nested or x.numel() == 0 or x._is_zerotensor():
        return False
    offset = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return bool(x.untyped_storage().nbytes() < (offset + 1) * x.itemsize)
