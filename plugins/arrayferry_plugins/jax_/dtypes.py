"""The dtypes that JAX has: those of the table that `jax.numpy` names."""

from __future__ import annotations

from functools import cache
from typing import Any

from arrayferry import STANDARD_DTYPES
from arrayferry.adapting import EXTENDED_DTYPES, dtype_named

__all__ = ["WIDE", "dtype_names", "native_dtypes"]

WIDE = frozenset(("int64", "uint64", "float64", "complex128"))


@cache
def dtype_names(wide: bool) -> frozenset[str]:
    """The names of the dtypes that JAX has, with `jax_enable_x64` or without."""
    import jax.numpy as jnp

    if not wide:
        return dtype_names(True) - WIDE
    return frozenset(name for name in STANDARD_DTYPES | EXTENDED_DTYPES if hasattr(jnp, name))


@cache
def native_dtypes(wide: bool) -> frozenset[Any]:
    """The same dtypes as NumPy has them, in native byte order."""
    return frozenset(map(dtype_named, dtype_names(wide)))
