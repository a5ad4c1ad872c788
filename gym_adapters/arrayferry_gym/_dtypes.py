"""Names of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

import arrayferry as af

__all__ = ["held_dtype", "plain_name"]


def plain_name(dtype: Any) -> str:
    """Return the name of a dtype of any library, without that of the library."""
    return str(dtype).rpartition(".")[2]


def held_dtype(dtype: Any, backend: af.Backend) -> str:
    """Return the name of the dtype that a library has for one of NumPy."""
    return str(af.fit_dtype(np.zeros((), dtype), backend, "allow").dtype.name)
