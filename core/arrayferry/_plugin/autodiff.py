"""`Autodiff`: how a library differentiates, so that gradients cross between libraries.

A plugin has two roles. With `Autodiff.vjp`, it differentiates functions of its library for callers of other libraries.
With `Autodiff.call`, its library differentiates through calls of functions of other libraries. Only reverse mode
crosses. `vjp` can differentiate what it has made, and so gives higher derivatives too.

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
        build: puts other arrays in the places of these.
    """

    arrays: list[Any]
    build: Callable[[Sequence[Any]], Any] = list

    def __repr__(self) -> str:
        return f"<Flat of {len(self.arrays)} arrays>"


FlatFunction = Callable[[list[Any]], Flat]
"""A function of a list of arrays."""

Differentiated = Callable[[list[Any]], tuple[Flat, Callable[[list[Any]], list[Any]]]]
"""Calls a function. Returns its results, and a function that turns their cotangents into those of its arguments."""


class Crossing(Protocol):
    """One call of a function of another library. All arrays are of the caller's library.

    Arrays are numbered in order. Only arrays of floating-point or complex dtype have cotangents; lists of these omit
    all others.

    Attributes:
        name: the name of the function in errors.
    """

    name: str

    def __call__(
        self, arrays: Sequence[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, Crossing | None]:
        """Call the function.

        Args:
            arrays: the arguments. They may be traced if the library overrides `Backend.callback`.
            wanted: the indices of the arguments to differentiate with respect to.

        Returns:
            The results, without gradient; and the `pullback`, which uses what this call has saved, None if nothing
            is wanted.

        Raises:
            TracedValueError: the arguments are traced, and the results are not known in advance.
        """
        ...

    def pullback(self, count: int, wanted: tuple[int, ...]) -> Crossing:
        """Return the call that takes `count` arguments and cotangents of results, and returns the wanted cotangents."""
        ...

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Crossing:
        """Return the call that maps over an axis of its arguments. See `Autodiff.vmap`."""
        ...


class Autodiff(ABC):
    """How a library differentiates. A backend holds one as `autodiff`.

    Attributes:
        takes_numpy: whether a compiled function takes NumPy arrays in place of its library's arrays, and this is
            cheaper than converting them. They have dtypes that the library has, and memory that nothing else uses.
    """

    takes_numpy: bool = False

    def compiles(self, function: Callable[..., Any]) -> bool:
        """Return whether a user's function is compiled, so that its gradient may be compiled too."""
        return False

    @abstractmethod
    def vjp(
        self, function: FlatFunction, wanted: tuple[int, ...], *, compiled: bool
    ) -> Differentiated:
        """Prepare a function of this library for differentiation.

        Args:
            function: the function. It may itself call what `vjp` returned.
            wanted: the indices of the arguments to differentiate with respect to. There may be none.
            compiled: whether the function may be compiled. What is returned is then kept for further calls.

        Returns:
            A function from arguments to results and a pullback. The pullback returns the cotangents of the wanted
            arguments, and may be called several times. Both can be differentiated by this library.
        """

    def gradient(self, function: FlatFunction, count: int, wanted: tuple[int, ...]) -> FlatFunction:
        """Return a function of `count` arguments and the cotangents of results that returns the wanted cotangents."""

        def gradient(values: list[Any]) -> Flat:
            _, pull = self.vjp(function, wanted, compiled=False)(values[:count])
            return Flat(pull(values[count:]))

        return gradient

    def vmap(self, function: FlatFunction, axes: tuple[int | None, ...], size: int) -> FlatFunction:
        """Return the function that maps over an axis of its arguments, and stacks its results along axis 0.

        Args:
            function: a function of this library.
            axes: the axis of each argument, None for those that are the same for all.
            size: the length of the axis.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no vmap. Call the function for each row, and stack the results."
        )

    @abstractmethod
    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> Flat:
        """Call a function of another library, so that this library can differentiate through the call.

        Args:
            crossing: the call.
            arrays: arrays of this library.

        Returns:
            The results, arrays of this library, which carry gradients as the arguments do.
        """

    def __repr__(self) -> str:
        return f"<Autodiff {type(self).__name__}>"
