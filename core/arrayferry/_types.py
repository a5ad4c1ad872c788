"""Types of arrays, targets and devices for type checkers. At run time, this module imports no array library.

The types of arguments are not the classes of arrays, but protocols with attributes that only arrays of one library
have. A type checker does not know the classes of a library that is not installed, and would accept any value for them.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

ToNumpy = Literal["numpy", "np"]
ToTorch = Literal["torch", "pytorch"]
ToJax = Literal["jax", "jnp", "jax.numpy"]
ToCupy = Literal["cupy"]
ToDask = Literal["dask", "dask.array"]
TargetName = Literal[ToNumpy, ToTorch, ToJax, ToCupy, ToDask, "warp", "wp"]
"""The names of the target libraries whose plugins are built in."""

AnyArray: TypeAlias = Any
"""An array of any library, or a number. Type checkers accept any value, since arrays have no common class."""

AnyTree: TypeAlias = Any
"""An array, containers of any types with arrays in them, or any other value."""

Device: TypeAlias = Hashable
"""A device object of a library, such as `torch.device("cpu")`, a name, such as "cuda:0", or None."""

Namespace: TypeAlias = ModuleType
"""The namespace of an Array API library: a module, or an object with the same functions."""


class _Torch(Protocol):
    """A tensor of PyTorch."""

    def requires_grad_(self) -> Any: ...


class _Jax(Protocol):
    """An array of JAX."""

    def addressable_data(self, index: int) -> Any: ...


class _Dask(Protocol):
    """An array of Dask."""

    def rechunk(self) -> Any: ...

    def map_overlap(self, func: Any, depth: Any) -> Any: ...


class _Named(Protocol):
    """A named tuple."""

    @property
    def _fields(self) -> tuple[str, ...]: ...


if TYPE_CHECKING:
    import cupy
    import dask.array
    import jax
    import numpy as np
    import torch
    from typing_extensions import TypeVar  # type checkers include this package

    NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    TorchArray: TypeAlias = torch.Tensor
    JaxArray: TypeAlias = jax.Array
    CupyArray: TypeAlias = cupy.ndarray
    DaskArray: TypeAlias = dask.array.Array

    Array: TypeAlias = (
        np.ndarray[Any, np.dtype[np.number[Any] | np.bool]] | np.number[Any] | np.bool
        | _Torch | _Jax | _Dask
    )  # fmt: skip
    """An array or a NumPy scalar of numbers or bools, but not of text or objects."""

    A = TypeVar("A", default=Any, covariant=True)
    K = TypeVar("K")
    NamedT = TypeVar("NamedT", bound=_Named)
    V = TypeVar("V")
    X = TypeVar("X", bound=Array)
else:
    from typing import TypeVar

    A = TypeVar("A", covariant=True)
