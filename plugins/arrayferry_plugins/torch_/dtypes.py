"""The dtypes that PyTorch has."""

from __future__ import annotations

from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES
from arrayferry.extending import dtype_named

EXTRA = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
"""The dtypes of `ml_dtypes` that PyTorch has. It has names for more of them, but hardly any functions."""


@cache
def dtype_names() -> frozenset[str]:
    """The names of the dtypes that both this version of PyTorch and other libraries have."""
    import torch

    return frozenset(name for name in (*STANDARD_DTYPES, *EXTRA) if hasattr(torch, name))


@cache
def numpy_dtypes() -> dict[Any, Any]:
    """For each dtype that NumPy lacks: the dtype of `ml_dtypes`, or None if `ml_dtypes` lacks it or is not installed.

    Its values are passed on as integers of the same size.
    """
    import torch

    return {getattr(torch, name): dtype_named(name) for name in dtype_names().intersection(EXTRA)}


@cache
def torch_dtypes() -> dict[Any, Any]:
    """For each of these dtypes of `ml_dtypes`: the dtype of PyTorch."""
    return {own: dtype for dtype, own in numpy_dtypes().items() if own is not None}
