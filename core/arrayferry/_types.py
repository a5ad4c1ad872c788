"""Types of arrays and targets for type checkers. At run time, this loads no library.

Arrays that are converted are described by attributes that only they have, not by their classes: the class of a library
that is not installed is unknown to a checker, which would accept everything for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections import OrderedDict, defaultdict
    from typing import TypeAlias, final

    import cupy
    import dask.array
    import jax
    import numpy as np
    import torch
    from typing_extensions import TypeVar  # every checker knows it, installed or not

    NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    TorchArray: TypeAlias = torch.Tensor
    JaxArray: TypeAlias = jax.Array
    CupyArray: TypeAlias = cupy.ndarray
    DaskArray: TypeAlias = dask.array.Array

    A = TypeVar("A", default=Any, covariant=True)
    B = TypeVar("B", default=Any, covariant=True)
else:
    from typing import TypeVar

    A = TypeVar("A", covariant=True)
    B = TypeVar("B", covariant=True)


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

    class _NumpyModule(Protocol):
        @property
        def ndarray(self) -> type[NumpyArray]: ...

    class _TorchModule(Protocol):
        @property
        def Tensor(self) -> type[torch.Tensor]: ...  # noqa: N802

    class _JaxModule(Protocol):
        @property
        def ndarray(self) -> type[jax.Array]: ...

    class _CupyModule(Protocol):
        @property
        def ndarray(self) -> type[cupy.ndarray]: ...

        @property
        def RawKernel(self) -> Any: ...  # noqa: N802

    class _DaskModule(Protocol):
        @property
        def from_delayed(self) -> Any: ...

        @property
        def map_overlap(self) -> Any: ...

    class AnyModule(Protocol):
        """A variable that holds some module: to checkers it has every attribute, also this one."""

        @property
        def _that_no_module_has(self) -> Any: ...

    ToNumpy: TypeAlias = Literal["numpy", "np"] | _NumpyModule
    ToTorch: TypeAlias = Literal["torch", "pytorch"] | _TorchModule
    ToJax: TypeAlias = Literal["jax", "jnp", "jax.numpy"] | _JaxModule
    ToCupy: TypeAlias = Literal["cupy"] | _CupyModule
    ToDask: TypeAlias = Literal["dask", "dask.array"] | _DaskModule

    Array: TypeAlias = (
        np.ndarray[Any, np.dtype[np.number[Any] | np.bool]] | np.number[Any] | np.bool
        | _Torch | _Jax | _Dask
    )  # fmt: skip
    """An array that is converted as a whole, or a NumPy scalar. Not an array of text or objects."""

    @final
    class _Nothing:
        """A type that no value has, so that only Any fits it."""

    Nothing: TypeAlias = _Nothing

    _Inner: TypeAlias = dict[Any, _Nothing] | list[_Nothing] | tuple[_Nothing, ...]
    Unclear: TypeAlias = (
        _Named
        | OrderedDict[Any, Any]
        | defaultdict[Any, Any]
        | _Inner
        | dict[Any, dict[Any, _Nothing]]
        | dict[Any, list[_Nothing]]
        | dict[Any, tuple[_Nothing, ...]]
        | list[dict[Any, _Nothing]]
        | list[list[_Nothing]]
        | list[tuple[_Nothing, ...]]
        | tuple[_Nothing, object]
        | tuple[object, _Nothing]
        | tuple[_Nothing, object, object]
        | tuple[object, _Nothing, object]
        | tuple[object, object, _Nothing]
    )
    """Structures whose types do not say what they hold, or whose results keep their class."""

    K = TypeVar("K")
    K2 = TypeVar("K2")
    V = TypeVar("V")
    W = TypeVar("W")
    R = TypeVar("R")
    T = TypeVar("T", covariant=True)
    X = TypeVar("X", bound="Array")
    X2 = TypeVar("X2", bound="Array")
    X3 = TypeVar("X3", bound="Array")
    Arrays = TypeVar("Arrays", bound="tuple[Array, ...]")
    Text = TypeVar("Text", bound="str | bytes | None")
    Leaf = TypeVar("Leaf", bound="str | bytes | int | None")

    class NoSuchOption(Protocol[T]):
        """A type that no value has if it is generic in `Nothing`.

        Where no overload fits, mypy takes one whose types are alike without their parameters, and reports the mistake in
        a call of that one. With this, the overload for all targets is alike, whatever an option is.
        Without it, mypy would list all overloads.
        """

        def __str__(self) -> T: ...  # type: ignore[override]

    Wrong: TypeAlias = NoSuchOption[_Nothing]
