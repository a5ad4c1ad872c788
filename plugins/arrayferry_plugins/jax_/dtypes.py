"""The dtypes that JAX has."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


__all__ = ["ALL", "NARROW", "WIDE", "native_dtypes"]


WIDE = frozenset(("int64", "uint64", "float64", "complex128"))


NARROW = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "float32",
        "complex64",
        "bfloat16",
        "int2",
        "int4",
        "uint2",
        "uint4",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
    ]
)


ALL = NARROW | WIDE


@cache
def native_dtypes(wide: bool) -> frozenset[np.dtype[Any]]:
    """The dtypes that JAX has, in native byte order."""
    import ml_dtypes
    import numpy as np

    names = ALL if wide else NARROW
    dtypes = [getattr(ml_dtypes, name, None) or name for name in names if name != "bool"]
    return frozenset([np.dtype(bool), *map(np.dtype, dtypes)])
