"""PyTorch: shares host memory with NumPy in both directions, and GPU memory with other libraries by DLPack."""

from __future__ import annotations

from typing import Any

from arrayferry import Backend, Converter, hookimpl

from .backend import BACKEND
from .backend import TorchBackend as TorchBackend
from .converters import NumpyToCuda, NumpyToTorch, TorchToNumpy


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converters from and to NumPy."""
    return [NumpyToTorch(), TorchToNumpy(), NumpyToCuda()]


@hookimpl(optionalhook=True)
def arrayferry_gradients() -> list[Any]:
    """Return the `Autodiff` of PyTorch."""
    from .functions import TorchAutodiff

    return [TorchAutodiff()]


@hookimpl(optionalhook=True)
def arrayferry_random() -> list[Any]:
    """Return the factory of random numbers."""
    from .random import TorchRandomFactory

    return [TorchRandomFactory()]
