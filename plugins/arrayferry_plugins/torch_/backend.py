"""The backend of PyTorch: the properties of its tensors and devices, and the general path to and from NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from arrayferry import Backend, Devices, DLPack
from arrayferry.typing import AnyArray, Device
from arrayferry_plugins._direct import is_capturing, unless_capturing
from arrayferry_plugins._sources import read_only, refused

from .dtypes import dtype_names, numpy_dtypes, torch_dtypes
from .tensors import explaining_errors, freed, is_out_of_memory, is_sparse, plain, refuse, traced


class TorchDevices(Devices):
    """The CPU, the GPUs of CUDA, and Apple's MPS."""

    def names(self) -> tuple[str, ...]:
        return _names()

    def default(self) -> str:
        return "cpu"

    def name_of(self, device: Device) -> str:
        device_type, index = getattr(device, "type", str(device)), getattr(device, "index", None)
        if device_type == "cuda" and index is None:
            import torch

            index = torch.cuda.current_device() if len(_names()) > 1 else 0
        return device_type if device_type == "cpu" or index is None else f"{device_type}:{index}"

    def move(self, x: AnyArray, device: Device) -> Any:
        x = plain(x)
        with explaining_errors(x):
            if x.is_meta:
                refuse(x)
            return x.to(device)

    def use(self, device: Device) -> Any:
        import torch

        return torch.device(device)

    def fence(self, x: AnyArray) -> Callable[[], bool] | None:
        if not x.is_cuda or is_capturing():
            return None
        import torch

        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(x.device))
        return unless_capturing(event.query)

    def protect(self, x: AnyArray) -> bool:
        import torch

        is_pluggable = torch.cuda.get_allocator_backend() == "pluggable"
        if not x.is_cuda or is_capturing() or is_pluggable or not x.untyped_storage().resizable():
            return False  # record_stream needs PyTorch's allocator, and fails in a graph capture
        x.record_stream(torch.cuda.current_stream(x.device))
        return True

    def is_out_of_memory(self, error: Exception) -> bool:
        return is_out_of_memory(error)


@cache
def _names() -> tuple[str, ...]:
    """Return the names of the devices. The result is cached, since a forked process must not query CUDA."""
    import torch

    gpus = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu", *gpus, *(("mps:0",) if torch.backends.mps.is_available() else ()))


class TorchDLPack(DLPack):
    """The exchange of tensors on a GPU by DLPack."""

    def export(self, x: AnyArray) -> Any:
        if plain(x) is not x:
            raise BufferError(
                "a read-only tensor is not exported, since another library could write to it"
            )
        refuse(x)
        x = x.detach().resolve_conj().resolve_neg()
        return _Exported(x) if x.is_cuda else x

    def load(self, x: AnyArray, device: Device = None) -> Any:
        import torch

        if hasattr(x, "__dlpack__"):
            return torch.from_dlpack(x)
        y = torch.as_tensor(x, device="cuda")
        cuda, stream_id = torch.cuda, x.__cuda_array_interface__.get("stream")
        if stream_id:  # PyTorch does not wait for this stream; 1 is the default stream
            stream = cuda.default_stream() if stream_id == 1 else cuda.ExternalStream(stream_id)
            cuda.current_stream().wait_stream(stream)
        return y


class _Exported:
    """A tensor on a GPU, for export by DLPack. Its GPU need not be the current GPU.

    Args:
        tensor: the tensor.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        import torch

        if is_capturing():  # a CUDA graph cannot wait for other streams, so do not wait: -1
            stream = -1
        with torch.cuda.device(self._tensor.device):
            if stream == 2:  # the per-thread default stream: PyTorch raises for it, so wait here
                torch.cuda.ExternalStream(stream).wait_stream(torch.cuda.current_stream())
                stream = -1
            return self._tensor.__dlpack__(stream=stream, **options)


class TorchBackend(Backend):
    """`torch.Tensor` and its subclasses, on the CPU, CUDA and Apple's MPS."""

    name = "torch"
    package = install = "torch"
    aliases: tuple[str, ...] = ("pytorch",)
    array_types: tuple[str, ...] = ("torch.Tensor", "torch.fx.Proxy")
    item_types: tuple[str, ...] = ("torch.Tensor",)
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True
    devices: Devices = TorchDevices()
    dlpack: DLPack | None = TorchDLPack()

    def to_numpy(self, x: AnyArray) -> Any:
        import torch

        if self.is_traced(x):
            raise traced()
        plain_tensor = plain(x)
        if plain_tensor is not x:
            return read_only(self.to_numpy(plain_tensor))
        with explaining_errors(x):
            refuse(x)
            x = x.detach()
            if x.device.type != "cpu":
                x = x.cpu()
            x = x.resolve_conj().resolve_neg()
            if x._is_zerotensor():
                x = x.clone()
            numpy_dtype = numpy_dtypes().get(x.dtype, x)
            if numpy_dtype is None:
                noun, reason = f"a tensor of dtype {x.dtype}", ": NumPy has it only with ml_dtypes"
                remedy = "Run: pip install --upgrade ml_dtypes. Or first call x.float()."
                raise refused(noun, dtype=x.dtype, why=reason, remedy=remedy)
            if numpy_dtype is x:
                return x.numpy()
            return x.view(getattr(torch, f"int{8 * x.itemsize}")).numpy().view(numpy_dtype)

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        import torch

        dtype = torch_dtypes().get(x.dtype)
        if dtype is None:
            y = torch.from_numpy(x)
        else:
            y = torch.from_numpy(x.view(f"int{8 * x.itemsize}")).view(dtype)
        return y if device is None or device == "cpu" else y.to(device)

    def is_sparse(self, x: AnyArray) -> bool:
        return is_sparse(plain(x))

    def to_dense(self, x: AnyArray) -> Any:
        return x.detach().to_dense()

    def copy(self, x: AnyArray) -> Any:
        import torch

        x = plain(x)
        with explaining_errors(x):
            if torch.nn.parameter.is_lazy(x) or freed(x):
                refuse(x)
            try:
                return x.clone()
            except RuntimeError as error:
                # clone() lacks some dtypes, such as uint4: copy the bytes
                if isinstance(error, NotImplementedError) or "not implemented for" in str(error):
                    return x.view(torch.uint8).clone().view(x.dtype)
                # say that a quantised tensor must be dequantised first
                if x.is_quantized:
                    refuse(x)
                raise

    def device_of(self, x: AnyArray) -> str:
        try:
            return "cpu" if x.is_cpu else str(x.device)
        except RuntimeError:
            x = plain(x)
            return "cpu" if x.is_cpu else str(x.device)

    def dtypes(self) -> frozenset[str]:
        return dtype_names()

    def address(self, x: AnyArray) -> int | None:
        return int(plain(x).data_ptr())

    def number_dtype(self, kind: str) -> str:
        import torch

        if kind not in ("float", "complex"):
            return super().number_dtype(kind)
        dtype = torch.get_default_dtype()
        return str(dtype if kind == "float" else dtype.to_complex()).removeprefix("torch.")

    def is_traced(self, x: AnyArray) -> bool:
        import torch

        if not isinstance(x, torch.Tensor):  # `x` is a torch.fx.Proxy, which records operations
            return True
        functorch = torch._C._functorch
        if functorch.is_functorch_wrapped_tensor(x) or functorch.is_legacy_batchedtensor(x):
            return True
        if torch._is_functional_tensor(x):
            return True
        fake_module = sys.modules.get("torch._subclasses.fake_tensor")
        if fake_module is not None and isinstance(x, fake_module.FakeTensor):
            return True
        proxy_module = sys.modules.get("torch.fx.experimental.proxy_tensor")
        mode = None if proxy_module is None else proxy_module.get_proxy_mode()
        if mode is None:
            return False
        proxy_slot = proxy_module.get_proxy_slot(x, mode.tracer, None)  # type: ignore[union-attr]
        return proxy_slot is not None and getattr(proxy_slot, "constant", None) is None


BACKEND = TorchBackend()
