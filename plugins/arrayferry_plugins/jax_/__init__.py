"""JAX: arrays that do not change, even if someone writes to the memory from which they were made.

Values are first copied into memory that nothing else uses, since JAX may share the memory of its input, or read it
later in another thread. JAX reads large arrays later even if a copy is requested.
"""

from __future__ import annotations

from typing import Any

from arrayferry import Backend, Container, Converter, hookimpl

from .backend import BACKEND
from .backend import JaxBackend as JaxBackend
from .converters import JaxToNumpy, JaxToTorch, NumpyToGpu, NumpyToJax, TorchToJax
from .pytrees import Pytrees


def arrayferry_backends() -> list[Backend]:
    """Return the backend of this module."""
    return [BACKEND]


def arrayferry_converters() -> list[Converter]:
    """Return the direct converters from and to NumPy and PyTorch."""
    return [NumpyToJax(), NumpyToGpu(), TorchToJax(), JaxToNumpy(), JaxToTorch()]


def arrayferry_containers() -> list[Container]:
    """Return the container for the types that users have registered with JAX as pytrees."""
    return [Pytrees()]


@hookimpl(optionalhook=True)
def arrayferry_gradients() -> list[Any]:
    """Return the `Autodiff` of JAX."""
    from .functions import JaxAutodiff

    return [JaxAutodiff()]


@hookimpl(optionalhook=True)
def arrayferry_random() -> list[Any]:
    """Return the factory of random numbers."""
    from .random import JaxRandomFactory

    return [JaxRandomFactory()]
