"""`Autodiff`: how a library differentiates, so that gradients cross between libraries.

A plugin has two roles. A function of its library can be differentiated for callers of others
(`Differentiable`), and a call of a function of another library can take part in its own
differentiation (`Autodiff.call`).

Cotangents of complex numbers follow one convention: for a real loss L of z = x + iy, the cotangent of z
is dL/dx + i dL/dy, as in PyTorch. JAX uses its conjugate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Flat(NamedTuple):
    """The results of a function.

    Attributes:
        arrays: the arrays, in order.
        layout: the hashable layout that rebuilds the structure around them, None for a plain list.
    """

    arrays: list[Any]
    layout: Any = None

    def __repr__(self) -> str:
        return f"<Flat of {len(self.arrays)} arrays>"


FlatFunction = Callable[[list[Any]], Flat]
"""A function of a list of arrays."""


class Differentiable(ABC):
    """A function of one library that can be differentiated. A plugin subclasses it.

    Arrays are numbered in order. Only arrays of floating-point or complex dtype have tangents and cotangents; lists
    of these omit all others.

    Attributes:
        takes_numpy: whether it takes NumPy arrays in place of its library's arrays, and this is cheaper than
            converting them. They have dtypes that the library has, and memory that nothing else uses.
    """

    takes_numpy: bool = False

    @abstractmethod
    def __call__(self, arrays: list[Any]) -> Flat:
        """Call the function."""

    @abstractmethod
    def vjp(
        self, arrays: list[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, Callable[[list[Any]], list[Any]]]:
        """Call the function, and prepare the product of cotangents with its Jacobian.

        Args:
            arrays: the arguments.
            wanted: the indices of the arguments to differentiate with respect to.

        Returns:
            The results, and a function from the cotangents of the results to those of the wanted arguments. It may
            be called several times.
        """

    def transposed(self, count: int, wanted: tuple[int, ...]) -> Differentiable:
        """Return the function from `count` arguments and cotangents of the results to cotangents.

        It makes second and higher derivatives possible. It returns the cotangents of the wanted arguments.
        """
        raise NotImplementedError("second derivatives")

    def pushed(self, count: int, wanted: tuple[int, ...]) -> Differentiable:
        """Return the function from `count` arguments and tangents of the wanted ones to tangents of the results.

        It makes forward mode possible.
        """
        raise NotImplementedError("forward mode")

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Differentiable:
        """Return the function that maps over an axis of its arguments, and stacks its results along axis 0.

        Args:
            axes: the axis of each argument, None for those that are the same for all.
            size: the length of the axis.
        """
        raise NotImplementedError("vmap")

    def __repr__(self) -> str:
        return f"<Differentiable {type(self).__name__}>"


class Crossing(Protocol):
    """One call of a function of another library. All arrays are the caller's library's.

    Attributes:
        name: the name of the function in errors.
    """

    name: str

    @property
    def prepared(self) -> bool:
        """Whether `run` uses earlier results, so that `vjp` would cost more."""
        ...

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Call the function with values. Its result has no gradient."""
        ...

    def vjp(
        self, arrays: Sequence[Any], wanted: tuple[int, ...]
    ) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
        """Call the function and prepare its vector-Jacobian product, as `Differentiable.vjp` does."""
        ...

    def transposed(
        self,
        count: int,
        wanted: tuple[int, ...],
        pullback: Any = None,
    ) -> Crossing:
        """Return the call from `count` arguments and cotangents to cotangents.

        Args:
            count: the number of arguments.
            wanted: as for `vjp`.
            pullback: the result of `vjp` for the same arguments, so that nothing is recomputed.
        """
        ...

    def pushed(self, count: int, wanted: tuple[int, ...]) -> Crossing:
        """Return the call from `count` arguments and tangents to tangents."""
        ...

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Crossing:
        """Return the call that maps over an axis of its arguments."""
        ...

    def shapes(self, arrays: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
        """Return the shapes and dtypes of the results if the arguments are traced.

        Raises:
            TracedValueError: they are not known.
        """
        ...

    def on_host(self, arrays: Sequence[Any]) -> list[Any]:
        """Call the function with NumPy arrays, and return NumPy arrays of the expected `shapes`."""
        ...


class Autodiff(ABC):
    """How a library differentiates. A backend holds one as `autodiff`."""

    def compiles(self, function: Callable[..., Any]) -> bool:
        """Return whether a user's function is compiled, so that its gradient may be compiled too."""
        return False

    @abstractmethod
    def function(self, function: FlatFunction, *, compiled: bool) -> Differentiable:
        """Prepare a function of this library for differentiation by callers of other libraries.

        Args:
            function: a function of a list of arrays of this library.
            compiled: whether it may be compiled. The result is then kept for further calls.
        """

    @abstractmethod
    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> list[Any]:
        """Call a function of another library, so that this library can differentiate through the call.

        Args:
            crossing: the call.
            arrays: arrays of this library.

        Returns:
            Arrays of this library, which carry gradients as the arguments do.
        """

    def __repr__(self) -> str:
        return f"<Autodiff {type(self).__name__}>"
