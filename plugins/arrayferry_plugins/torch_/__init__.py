"""PyTorch: shares host memory with NumPy in both directions, and GPU memory by DLPack."""

from __future__ import annotations

from arrayferry import Backend, Converter

from .backend import BACKEND
from .backend import TorchBackend as TorchBackend
from .converters import NumpyToCuda, NumpyToTorch, TorchToNumpy
from .converters import host_values as host_values
from .random import TorchRandom as TorchRandom


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converters from and to NumPy."""
    return [NumpyToTorch(), TorchToNumpy(), NumpyToCuda()]
