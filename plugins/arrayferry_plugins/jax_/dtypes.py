"""The dtypes that JAX has."""

from __future__ import annotations

from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES
from arrayferry.extending import dtype_named

WIDE = frozenset(("int64", "uint64", "float64", "complex128"))
"""The dtypes that JAX has only with `jax_enable_x64`."""

EXTRA = frozenset(
    (
        "bfloat16", "int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3",
        "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
)  # fmt: skip
"""The dtypes of `ml_dtypes` that JAX arrays can have. `jax.numpy` also has names for dtypes that they cannot have."""


@cache
def dtype_names(wide: bool) -> frozenset[str]:
    """Return the names of the dtypes that JAX has: with `jax_enable_x64` if `wide`, else without."""
    return (STANDARD_DTYPES if wide else STANDARD_DTYPES - WIDE) | EXTRA


@cache
def native_dtypes(wide: bool) -> frozenset[Any]:
    """Return the dtypes that `dtype_names` names, as NumPy dtypes in native byte order."""
    return frozenset(map(dtype_named, dtype_names(wide)))
