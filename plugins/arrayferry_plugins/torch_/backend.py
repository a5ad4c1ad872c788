"""The backend of PyTorch: facts about its tensors, and the general path to and from NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from arrayferry import (
    ArrayFerryError,
    Autodiff,
    Backend,
    ConversionError,
    TracedValueError,
    UnsupportedDtypeError,
)
from arrayferry.adapting import describe_error
from arrayferry_plugins._cuda import is_capturing, unless_capturing

from .dtypes import dtype_bits, dtype_names, dtypes_by_bits
from .functions import TorchAutodiff
from .random import TorchRandom


class TorchBackend(Backend):
    """`torch.Tensor` and its subclasses, on the CPU, CUDA and Apple's MPS."""

    name = "torch"
    package = install = "torch"
    aliases: tuple[str, ...] = ("pytorch",)
    array_types: tuple[str, ...] = ("torch.Tensor",)
    item_types: tuple[str, ...] = ("torch.Tensor",)
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True
    dlpack_devices: tuple[str, ...] = ("cuda",)
    autodiff: Autodiff | None = TorchAutodiff()

    def to_numpy(self, x: Any) -> Any:
        if self.is_traced(x):
            raise TracedValueError("a traced torch value has no values yet")
        plain = _plain(x)
        if plain is not x:
            values = self.to_numpy(plain).view()
            values.flags.writeable = False
            return values
        with _explaining_errors(x):
            _refuse(x)
            x = x.detach()
            if x.device.type != "cpu":
                x = x.cpu()
            x = x.resolve_conj().resolve_neg()
            if x._is_zerotensor():
                x = x.clone()
            dtype = dtype_bits().get(x.dtype)
            if dtype is not None:
                raw, viewed = dtype
                return x.view(raw).numpy().view(viewed)
            return x.numpy()

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import torch

        raw = dtypes_by_bits().get(x.dtype)
        if raw is not None:
            bits, dtype = raw
            y = torch.from_numpy(x.view(bits)).view(dtype)
        else:
            y = torch.from_numpy(x)
        return y if device is None or device == "cpu" else y.to(device)

    def is_sparse(self, x: Any) -> bool:
        return _is_sparse(_plain(x))

    def to_dense(self, x: Any) -> Any:
        return x.detach().to_dense()

    def copy(self, x: Any) -> Any:
        import torch

        x = _plain(x)
        with _explaining_errors(x):
            if torch.nn.parameter.is_lazy(x) or _freed(x):
                _refuse(x)
            try:
                return x.clone()
            except RuntimeError as error:
                # a dtype of a few bits, such as uint4, has hardly any functions
                if isinstance(error, NotImplementedError) or "not implemented for" in str(error):
                    return x.view(torch.uint8).clone().view(x.dtype)
                if x.is_quantized:  # it lacks the scale that its values are computed with
                    _refuse(x)
                raise

    def to_device(self, x: Any, device: Any) -> Any:
        x = _plain(x)
        with _explaining_errors(x):
            if x.is_meta:
                _refuse(x)
            return x.to(device)

    def devices(self) -> tuple[str, ...]:
        return _devices()

    def default_device(self) -> str:
        return "cpu"

    def fence(self, x: Any) -> Callable[[], bool] | None:
        if not x.is_cuda or is_capturing():
            return None
        import torch

        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(x.device))
        return unless_capturing(event.query)

    def device_of(self, x: Any) -> str:
        try:
            return "cpu" if x.is_cpu else str(x.device)
        except RuntimeError:
            x = _plain(x)
            return "cpu" if x.is_cpu else str(x.device)

    def device_name(self, device: Any) -> str:
        kind, index = getattr(device, "type", str(device)), getattr(device, "index", None)
        if kind == "cuda" and index is None:
            import torch

            index = torch.cuda.current_device() if len(_devices()) > 1 else 0
        return kind if kind == "cpu" or index is None else f"{kind}:{index}"

    def dtypes(self) -> frozenset[str]:
        return dtype_names()

    def address(self, x: Any) -> int | None:
        return int(_plain(x).data_ptr())

    def number_dtype(self, kind: str) -> str:
        import torch

        if kind not in ("float", "complex"):
            return super().number_dtype(kind)
        dtype = torch.get_default_dtype()
        return str(dtype if kind == "float" else dtype.to_complex()).removeprefix("torch.")

    def to_dlpack(self, x: Any) -> Any:
        if _plain(x) is not x:
            raise BufferError(
                "a read-only tensor is not shared with a library that could write to it"
            )
        _refuse(x)
        x = x.detach().resolve_conj().resolve_neg()
        return _Exported(x) if x.is_cuda else x

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        import torch

        return torch.from_dlpack(x)

    def uncompiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        disabled: list[Callable[..., Any]] = []

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            # nothing is compiled before torch._dynamo is imported, which takes a second
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            if not disabled:
                import torch

                disabled.append(torch.compiler.disable(function))
            return disabled[0](*args, **kwargs)

        wrapper._torchdynamo_disable = True  # type: ignore[attr-defined]  # then errors name torch.compiler.disable
        return wrapper

    def is_out_of_memory(self, error: Exception) -> bool:
        import torch

        return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
            isinstance(error, RuntimeError) and "allocate memory" in str(error)
        )

    def random(self, seed: Any = None, device: Any = None) -> TorchRandom:
        return TorchRandom(seed, device)

    def use_device(self, device: Any) -> Any:
        import torch

        return torch.device(device)

    def is_traced(self, x: Any) -> bool:
        import torch

        functorch = torch._C._functorch
        if functorch.is_functorch_wrapped_tensor(x) or functorch.is_legacy_batchedtensor(x):
            return True
        if torch._is_functional_tensor(x):
            return True
        fake = sys.modules.get("torch._subclasses.fake_tensor")
        return fake is not None and isinstance(x, fake.FakeTensor)


class _Exported:
    """A tensor on a GPU that can be exported whichever GPU is the current one.

    Args:
        tensor: the tensor.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        import torch

        if is_capturing():  # a graph cannot wait for streams that are not part of it
            stream = -1
        with torch.cuda.device(self._tensor.device):
            return self._tensor.__dlpack__(stream=stream, **options)


@cache
def _devices() -> tuple[str, ...]:
    """Return the names of the devices. They are queried once: a forked process cannot, and uses its parent's answer."""
    import torch

    gpus = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu", *gpus, *(("mps:0",) if torch.backends.mps.is_available() else ()))


BACKEND = TorchBackend()


def _plain(x: Any) -> Any:
    """Return the tensor in a `ReadOnlyTensorWrapper`, which allows nothing but DLPack; any other tensor as it is."""
    import torch

    wrapper = getattr(sys.modules.get("torch.utils.dlpack"), "ReadOnlyTensorWrapper", ())
    if not isinstance(x, wrapper):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(torch.Tensor)


@contextmanager
def _explaining_errors(x: Any) -> Iterator[None]:
    """Explain an error of a tensor that is made of others, such as a DTensor: only its class knows its values."""
    import torch

    try:
        yield
    except Exception as error:
        cls = type(x)
        ordinary = cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        if ordinary or isinstance(error, ArrayFerryError) or BACKEND.is_out_of_memory(error):
            raise
        methods = [
            f"x.{name}()"
            for name in ("full_tensor", "dequantize", "to_dense", "to_tensor")
            if getattr(cls, name, None) is not getattr(torch.Tensor, name, None)
        ]
        raise ConversionError(
            f"a {cls.__module__}.{cls.__qualname__}, which is made of other tensors, cannot be converted "
            f"({describe_error(error)})",
            remedy=f"Call {methods[0] if methods else 'what makes an ordinary tensor of it'} first.",
        ) from error


def _refuse(x: Any) -> None:
    """Raise for a tensor that is more than values in a strided block of memory."""
    import torch

    if hasattr(x, "_masked_data"):  # torch.masked.MaskedTensor
        what, first = "a masked tensor, whose mask would be lost,", "x.to_tensor(value)"
    elif torch.nn.parameter.is_lazy(x):
        what, first = "an uninitialized parameter", "its module with an input"
    elif x.is_nested:
        what, first = "a nested tensor", "x.unbind(), or torch.nested.to_padded_tensor(x, 0.0),"
    elif _is_sparse(x):
        what, first = "a sparse tensor", "x.to_dense()"
    elif x.is_mkldnn:
        what, first = "an MKL-DNN tensor", "x.to_dense()"
    elif x.is_quantized:
        what, first = "a quantised tensor", "x.dequantize()"
    elif x.is_meta:
        what = "a meta tensor, which has no values,"
        first = "x.to_empty(device='cpu'), and fill it,"
    elif _freed(x):
        what = "a tensor whose storage was freed"
        first = "what allocates it again, such as unshard(),"
    elif str(x.dtype).removeprefix("torch.") not in dtype_names():
        bits = "x.view(torch.uint8), which has its bytes,"
        first = "x.to(torch.complex64)" if x.dtype.is_complex else bits
        raise UnsupportedDtypeError(
            f"a tensor of dtype {x.dtype} cannot be converted, since no other library has that dtype",
            remedy=f'Call {first} first, or pass unsupported="keep".',
            dtype=str(x.dtype),
        )
    else:
        return
    raise ConversionError(f"{what} cannot be converted", remedy=f"Call {first} first.")


def _is_sparse(x: Any) -> bool:
    return str(x.layout).startswith("torch.sparse_")


def _freed(x: Any) -> bool:
    """Return whether a tensor is larger than its storage, as after the storage was resized to zero."""
    import torch

    if x.layout is not torch.strided or x.is_nested or x.numel() == 0 or x._is_zerotensor():
        return False
    last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return bool(x.untyped_storage().nbytes() < (last + 1) * x.itemsize)
