"""The dtypes that PyTorch has."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


__all__ = ["dtype_bits", "dtype_names", "dtypes_by_bits"]


@cache
def dtype_bits() -> dict[Any, tuple[Any, Any]]:
    """For each dtype that NumPy lacks: a PyTorch dtype of the same size, and the one of `ml_dtypes`."""
    import numpy as np
    import torch

    try:
        import ml_dtypes
    except ImportError:
        return {}
    by_dtype = {}
    for name in _EXTRA:
        dtype, own = getattr(torch, name, None), getattr(ml_dtypes, name, None)
        if dtype is not None and own is not None:
            raw = torch.int16 if dtype.itemsize == 2 else torch.uint8
            by_dtype[dtype] = (raw, np.dtype(own))
    return by_dtype


@cache
def dtypes_by_bits() -> dict[str, tuple[Any, Any]]:
    """For the name of each such dtype: a NumPy dtype of the same size, and the one of PyTorch."""
    import numpy as np

    return {
        viewed.name: (np.dtype(f"{'i' if viewed.itemsize == 2 else 'u'}{viewed.itemsize}"), dtype)
        for dtype, (_, viewed) in dtype_bits().items()
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
def dtype_names() -> frozenset[str]:
    """The names of the dtypes that both PyTorch, as it is here, and other libraries have."""
    import torch

    plain = (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float16 float32 float64 complex64 complex128"
    )
    return frozenset(name for name in (*plain.split(), *_EXTRA) if hasattr(torch, name))
