"""The names of dtypes, and the numbers that each dtype can represent.

Only the standard dtypes are listed here. All other facts are read from the dtypes themselves, so that the dtypes of
newer versions of `ml_dtypes` also work.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

STANDARD_DTYPES = frozenset(
    (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
)  # fmt: skip
"""The names of the dtypes of the Array API standard, and float16. `Backend.dtypes` returns them by default."""

_OF_ML_DTYPES = r"bfloat16|b?complex32|float\d_\w+|u?int[124]"
"""A pattern for the names of dtypes of `ml_dtypes`. The package may be missing, or may lack some of them."""


class DtypeInfo(NamedTuple):
    """The numbers that a dtype can represent.

    Attributes:
        kind: "bool", "int", "uint", "float" or "complex", or "" for any other dtype.
        limits: the `iinfo` or `finfo` of the dtype, or None if `kind` is "bool" or "". The `finfo` of a complex dtype
            describes the real part and the imaginary part.
    """

    kind: str
    limits: Any = None

    def holds(self, other: DtypeInfo) -> bool:
        """Return whether this dtype can represent every number of `other`, a dtype of the same kind."""
        limits, other_limits = self.limits, other.limits
        if limits is None:
            return True
        if self.kind in ("int", "uint"):
            return bool(other_limits.max <= limits.max)
        in_range = limits.minexp <= other_limits.minexp and other_limits.maxexp <= limits.maxexp
        holds_finite = in_range and other_limits.nmant <= limits.nmant
        return holds_finite and _special_values(limits.dtype) >= _special_values(other_limits.dtype)


@functools.lru_cache(maxsize=1024)
def dtype_info(dtype: np.dtype[Any]) -> DtypeInfo:
    """Describe the numbers that a dtype of NumPy or `ml_dtypes` can represent.

    Examples:
        >>> import numpy as np
        >>> from arrayferry.extending import dtype_info
        >>> dtype_info(np.dtype("uint8")).kind, dtype_info(np.dtype("uint8")).limits.bits
        ('uint', 8)
    """
    if dtype.kind == "b":
        return DtypeInfo("bool")
    library = dtype.type.__module__
    if library not in ("numpy", "ml_dtypes"):
        return DtypeInfo("")
    module: Any = sys.modules[library]
    with suppress(ValueError):
        limits = module.iinfo(dtype.type)
        return DtypeInfo("int" if limits.min < 0 else "uint", limits)
    with suppress(ValueError):
        limits = module.finfo(dtype.type)
        return DtypeInfo("float" if limits.dtype.itemsize == dtype.itemsize else "complex", limits)
    return DtypeInfo("")


@functools.lru_cache(maxsize=1024)
def _special_values(dtype: np.dtype[Any]) -> frozenset[str]:
    """Return which of the values "inf", "nan", "-0.0" and "-1.0" a floating-point dtype can represent."""
    import numpy as np

    candidates = np.array([np.inf, np.nan, -0.0, -1.0])
    with np.errstate(all="ignore"):
        cast = candidates.astype(dtype).astype(float)
    return frozenset(map(str, candidates)) & frozenset(map(str, cast))


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of any library: "float32" for `torch.float32` and for the class `warp.float32`."""
    try:
        return _dtype_name(dtype)  # cached, since NumPy takes 4 us to make the name of a dtype
    except TypeError:  # this dtype object cannot be hashed, so its name is not cached
        return _dtype_name.__wrapped__(dtype)


@functools.lru_cache(maxsize=1024, typed=True)
def _dtype_name(dtype: Any) -> str:
    default = dtype.__name__ if isinstance(dtype, type) else dtype
    return str(getattr(dtype, "name", default)).rpartition(".")[2]


@functools.cache
def dtype_named(name: str) -> np.dtype[Any] | None:
    """Return the dtype that has this name in NumPy or `ml_dtypes`, or None if neither has such a dtype."""
    import numpy as np

    with suppress(TypeError):
        return np.dtype(name)
    with suppress(ImportError, AttributeError, TypeError):
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    return None


def unknown_dtypes(names: Iterable[Any]) -> list[str]:
    """Return the names that are not dtypes of NumPy or `ml_dtypes`. `ml_dtypes` need not be installed."""
    unknown = (str(name) for name in names if dtype_named(name) is None)
    return sorted(name for name in unknown if not re.fullmatch(_OF_ML_DTYPES, name))
