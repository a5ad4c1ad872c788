"""The dtypes that PyTorch has."""

from __future__ import annotations

from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES
from arrayferry.extending import dtype_named

EXTRA = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
"""The dtypes of `ml_dtypes` that PyTorch has. It has names for more of them, but hardly any functions."""


@cache
def dtype_names() -> frozenset[str]:
    """The names of the dtypes that both this version of PyTorch and other libraries have."""
    import torch

    return frozenset(name for name in (*STANDARD_DTYPES, *EXTRA) if hasattr(torch, name))


@cache
def dtype_bits() -> dict[Any, tuple[Any, Any]]:
    """For each dtype that NumPy lacks: a PyTorch dtype of the same size, and the one of `ml_dtypes`."""
    import torch

    return {
        getattr(torch, name): (getattr(torch, f"int{8 * own.itemsize}"), own)
        for name in dtype_names().intersection(EXTRA)
        if (own := dtype_named(name)) is not None
    }


@cache
def dtypes_by_bits() -> dict[Any, tuple[Any, Any]]:
    """For each such dtype of `ml_dtypes`: a NumPy dtype of the same size, and the one of PyTorch."""
    import numpy as np

    return {
        own: (np.dtype(f"int{8 * own.itemsize}"), dtype) for dtype, (_, own) in dtype_bits().items()
    }
