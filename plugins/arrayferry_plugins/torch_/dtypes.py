"""The dtypes that PyTorch has."""

from __future__ import annotations

from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES
from arrayferry.extending import dtype_named

EXTRA = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""The dtypes of `ml_dtypes` that PyTorch supports.

PyTorch has other dtypes of `ml_dtypes` too, but hardly any functions for them.
"""


@cache
def dtype_names() -> frozenset[str]:
    """Return the names of the dtypes that both this version of PyTorch and other libraries have."""
    import torch

    return frozenset(name for name in (*STANDARD_DTYPES, *EXTRA) if hasattr(torch, name))


@cache
def numpy_dtypes() -> dict[Any, Any]:
    """Map each dtype of PyTorch that NumPy itself lacks to the same dtype of `ml_dtypes`.

    A dtype is mapped to None if `ml_dtypes` lacks it or is not installed. Arrays of the dtypes in the map are passed
    between PyTorch and NumPy as integers of the same size.
    """
    import torch

    return {getattr(torch, name): dtype_named(name) for name in dtype_names().intersection(EXTRA)}


@cache
def torch_dtypes() -> dict[Any, Any]:
    """Map the dtypes of `ml_dtypes` in `numpy_dtypes` to the dtypes of PyTorch."""
    return {ml_dtype: dtype for dtype, ml_dtype in numpy_dtypes().items() if ml_dtype is not None}
