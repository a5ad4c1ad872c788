"""PyTorch: shares host memory with NumPy in both directions, and GPU memory by DLPack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from arrayferry import (
    Backend,
    ConversionError,
    Converter,
    Inline,
    Options,
    Random,
    TracedValueError,
    UnsupportedDtypeError,
    hookimpl,
)

from ._cuda import is_capturing, unless_capturing
from ._packed import Packed
from ._torch_functions import TorchAutodiff, uncompiled

if TYPE_CHECKING:
    import numpy as np

    from arrayferry import Autodiff
    from arrayferry.typing import Cost, Memory

__all__ = [
    "NumpyToTorch",
    "TorchBackend",
    "TorchToNumpy",
    "arrayferry_backends",
    "arrayferry_converters",
]


class TorchBackend(Backend):
    """`torch.Tensor` and its subclasses, on the CPU, CUDA and Apple's MPS."""

    name = "torch"
    package = "torch"
    aliases: tuple[str, ...] = ("pytorch",)
    array_types: tuple[str, ...] = ("torch.Tensor",)
    item_types: tuple[str, ...] = ("torch.Tensor",)
    memory: Memory = "writable"
    to_numpy_shares: bool | None = True
    from_numpy_shares: bool | None = True
    dlpack_devices: tuple[str, ...] = ("cuda",)
    autodiff: Autodiff | None = TorchAutodiff()

    def to_numpy(self, x: Any) -> Any:
        if self.is_traced(x):
            raise TracedValueError("a traced torch value has no values yet")
        _refuse(x)
        x = x.detach()
        if x.device.type != "cpu":
            x = x.cpu()
        x = x.resolve_conj().resolve_neg()
        if x._is_zerotensor():
            x = x.clone()
        dtype = _bits().get(x.dtype)
        if dtype is not None:
            raw, viewed = dtype
            return x.view(raw).numpy().view(viewed)
        return x.numpy()

    def from_numpy(self, x: Any, device: Any = None) -> Any:
        import torch

        raw = _raw().get(x.dtype.name)
        if raw is not None:
            bits, dtype = raw
            y = torch.from_numpy(x.view(bits)).view(dtype)
        else:
            y = torch.from_numpy(x)
        return y if device is None or device == "cpu" else y.to(device)

    def is_sparse(self, x: Any) -> bool:
        return _is_sparse(x)

    def to_dense(self, x: Any) -> Any:
        return x.detach().to_dense()

    def copy(self, x: Any) -> Any:
        import torch

        if _freed(x):
            _refuse(x)
        try:
            return x.clone()
        except (
            NotImplementedError
        ):  # a dtype of a few bits, such as uint4, has hardly any functions
            return x.view(torch.uint8).clone().view(x.dtype)
        except RuntimeError:
            if x.is_quantized:  # without the numbers that its values are made with
                _refuse(x)
            raise

    def to_device(self, x: Any, device: Any) -> Any:
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
        return "cpu" if x.is_cpu else str(x.device)

    def device_name(self, device: Any) -> str:
        kind, index = getattr(device, "type", str(device)), getattr(device, "index", None)
        if kind == "cuda" and index is None:
            import torch

            index = torch.cuda.current_device() if len(_devices()) > 1 else 0
        return kind if kind == "cpu" or index is None else f"{kind}:{index}"

    def dtypes(self) -> frozenset[str]:
        return _names()

    def address(self, x: Any) -> int | None:
        return int(x.data_ptr())

    def number_dtype(self, kind: str) -> str:
        import torch

        if kind not in ("float", "complex"):
            return super().number_dtype(kind)
        dtype = torch.get_default_dtype()
        return str(dtype if kind == "float" else dtype.to_complex()).removeprefix("torch.")

    def to_dlpack(self, x: Any) -> Any:
        _refuse(x)
        x = x.detach().resolve_conj().resolve_neg()
        return _Exported(x) if x.is_cuda else x

    def from_dlpack(self, x: Any, device: Any = None) -> Any:
        import torch

        return torch.from_dlpack(x)

    def uncompiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return uncompiled(function)

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


class TorchRandom(Random):
    """Random numbers from a generator of PyTorch.

    Args:
        seed: the seed.
        device: the device of the generator and of the numbers.
    """

    def __init__(self, seed: Any = None, device: Any = None) -> None:
        import numpy as np
        import torch

        self._device = torch.device("cpu" if device is None else device)
        self._generator = torch.Generator(self._device)
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
            seed = np.random.SeedSequence(seed).generate_state(1, "uint64")[0] >> np.uint64(1)
        self._generator.manual_seed(int(seed))

    def _draw(self, make: Any, shape: Any, dtype: str) -> Any:
        import torch

        dtype = getattr(torch, dtype)
        return make(tuple(shape), generator=self._generator, device=self._device, dtype=dtype)

    def uniform(self, shape: Any, low: Any = 0.0, high: Any = 1.0, dtype: str = "float32") -> Any:
        import torch

        values = self._draw(torch.rand, shape, dtype)
        return (values * (high - low) + low).to(values.dtype)

    def normal(self, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: str = "float32") -> Any:
        import torch

        values = self._draw(torch.randn, shape, dtype)
        return (values * std + mean).to(values.dtype)

    def integers(self, shape: Any, low: Any, high: Any, dtype: str = "int32") -> Any:
        import torch

        if isinstance(low, int) and isinstance(high, int):
            return torch.randint(
                low, high, tuple(shape), generator=self._generator, device=self._device,
                dtype=getattr(torch, dtype),
            )  # fmt: skip
        values = self._draw(torch.rand, shape, "float64")
        return (values * (high - low) + low).floor().to(getattr(torch, dtype))

    def categorical(self, shape: Any, logits: Any, dtype: str = "int32") -> Any:
        import torch

        # of several exponential waiting times, the shortest is that of each index with its probability
        waits = torch.empty((*shape, logits.shape[-1]), device=self._device, dtype=logits.dtype)
        waits.exponential_(generator=self._generator)
        return (logits - waits.log()).argmax(-1).to(getattr(torch, dtype))


class _Exported:
    """A tensor on a GPU that is exported from whichever GPU is the current one.

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
    """Ask which devices there are, once: a forked process cannot ask, and knows what its parent knew."""
    import torch

    gpus = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu", *gpus, *(("mps:0",) if torch.backends.mps.is_available() else ()))


BACKEND = TorchBackend()


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
        what, first = (
            "a meta tensor, which has no values,",
            "x.to_empty(device='cpu'), and fill it,",
        )
    elif _freed(x):
        what, first = (
            "a tensor whose storage was freed",
            "what allocates it again, such as unshard(),",
        )
    elif str(x.dtype).removeprefix("torch.") not in _names():
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
    import torch

    return x.layout in (
        torch.sparse_coo,
        torch.sparse_csr,
        torch.sparse_csc,
        torch.sparse_bsr,
        torch.sparse_bsc,
    )


def _freed(x: Any) -> bool:
    """Tell whether a tensor is larger than its storage, as after the storage was resized to zero."""
    import torch

    if x.layout is not torch.strided or x.is_nested or x.numel() == 0 or x._is_zerotensor():
        return False
    last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return bool(x.untyped_storage().nbytes() < (last + 1) * x.itemsize)


@cache
def _bits() -> dict[Any, tuple[Any, Any]]:
    """For each dtype that NumPy lacks: a PyTorch dtype of the same size, and the one of `ml_dtypes`."""
    import numpy as np
    import torch

    try:
        import ml_dtypes
    except ImportError:
        return {}
    found = {}
    for name in _EXTRA:
        dtype, own = getattr(torch, name, None), getattr(ml_dtypes, name, None)
        if dtype is not None and own is not None:
            raw = torch.int16 if dtype.itemsize == 2 else torch.uint8
            found[dtype] = (raw, np.dtype(own))
    return found


@cache
def _raw() -> dict[str, tuple[Any, Any]]:
    import numpy as np

    return {
        viewed.name: (np.dtype(f"{'i' if viewed.itemsize == 2 else 'u'}{viewed.itemsize}"), dtype)
        for dtype, (_, viewed) in _bits().items()
    }


_EXTRA = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)


@cache
def _names() -> frozenset[str]:
    import torch

    plain = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float16 float32 float64 complex64 complex128"
    )
    return frozenset(name for name in (*plain.split(), *_EXTRA) if hasattr(torch, name))


def _view() -> Callable[[Any], Any]:
    """Return a function that views an ordinary CPU tensor as a NumPy array, and raises for any other."""
    from torch import Tensor

    view = Tensor.numpy

    def values(x: Any) -> Any:
        n = view(x)
        if n.flags.owndata:  # not the tensor's memory: its storage is freed, or not allocated yet
            raise ValueError("the tensor has no storage")
        return n

    return values


def host_values() -> Callable[[Any], Any]:
    """Return a function that reads the values of a CPU tensor, as a view if possible.

    It is fastest for ordinary tensors, and raises for tensors that are not on the CPU.
    """
    view, general = _view(), BACKEND.to_numpy

    def values(x: Any) -> Any:
        try:
            return view(x)
        except Exception:
            if not x.is_cpu:
                raise
        return general(x)

    return values


@cache
def _from_numpy() -> tuple[Callable[[Any], Any], str]:
    """Return PyTorch's `from_numpy`, and a condition for it to be safe, "" if it always is.

    Before 2.13 it may divide by the size of an item, which is zero for the dtype V0, and end the process.
    """
    import torch

    take = torch.from_numpy
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
        return take, ""
    return lambda x: take(x) if x.itemsize else NotImplemented, "{x}.itemsize"


class NumpyToTorch(Converter):
    """Shares the memory of aligned, writable arrays; PyTorch raises for strides that it does not support."""

    source: str = "numpy"
    target: str = "torch"
    cost: Cost = "share"
    types: tuple[str, ...] = ("numpy.ndarray",)

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        bound = self.bind(Options(device=device, copy=copy))
        return NotImplemented if bound is None else bound(x)

    def bind(self, options: Options) -> Callable[[Any], Any] | None:
        from_numpy, _ = _from_numpy()
        if options.copy:
            return lambda x: from_numpy(x.copy())
        if options.copy is False:
            return lambda x: from_numpy(x) if x.flags.behaved else NotImplemented
        # what cannot be shared, such as read-only memory, is copied
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


class TorchToNumpy(Converter):
    """Shares the memory of strided CPU tensors, without their gradient."""

    source: str = "torch"
    target: str = "numpy"
    cost: Cost = "share"
    types: tuple[str, ...] = ("torch.Tensor",)

    def convert(self, x: Any, device: Any = None, copy: bool | None = None) -> Any:
        return self.bind(Options(copy=copy))(x)

    def bind(self, options: Options) -> Callable[[Any], Any]:
        view, general, extra = _view(), BACKEND.to_numpy, _bits()

        def values(x: Any) -> Any:
            # asking costs less than to have view() raise
            if x.requires_grad or x.dtype in extra or x.is_conj() or x.is_neg():
                return general(x) if x.is_cpu else NotImplemented
            return view(x)

        if options.copy is False:
            return view
        return (lambda x: _copied(values(x))) if options.copy else values

    def inline(self, options: Options) -> Inline:
        from torch import Tensor

        result = "{y}.copy()" if options.copy else "{y}"
        return Inline("not ({y} := {show}({x})).flags.owndata", result, {"show": Tensor.numpy})


class NumpyToCuda(Packed):
    """Brings the small arrays of a tree to a GPU in one transfer for each dtype, from pinned memory."""

    target = "torch"

    @property
    def backend(self) -> Backend:
        return BACKEND

    def staging(self, size: int, dtype: Any) -> tuple[np.ndarray[Any, Any], Any]:
        import torch

        pinned = torch.empty(size * dtype.itemsize, dtype=torch.uint8, pin_memory=True)
        return pinned.numpy().view(dtype), pinned

    def transfer(self, staged: Any, dtype: Any, device: Any) -> Any:
        import torch

        _, own = _raw().get(dtype.name, (None, None))
        flat = staged.to(device, non_blocking=True)
        return flat.view(own or getattr(torch, dtype.name))


def _copied(n: Any) -> Any:
    return n if n is NotImplemented else n.copy()


@hookimpl
def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


@hookimpl
def arrayferry_converters() -> list[Converter]:
    """Return the direct converters from and to NumPy."""
    return [NumpyToTorch(), TorchToNumpy(), NumpyToCuda()]
