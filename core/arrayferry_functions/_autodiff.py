"""`Autodiff`: how a library differentiates, so that gradients cross between libraries.

A plugin has two roles. With `Autodiff.vjp`, it differentiates functions of its library for callers of other libraries.
With `Autodiff.call`, its library differentiates through calls of functions of other libraries. Only reverse
mode is supported. For higher derivatives, `vjp` differentiates the functions that it returned before.

Cotangents of complex numbers follow one convention. For a real loss L of z = x + iy, the cotangent of z
is dL/dx + i dL/dy, as in PyTorch. JAX uses the conjugate of this number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from arrayferry import Backend, registry
from arrayferry.extending import Part


class Flat(NamedTuple):
    """The results of a function, with their arrays as a list.

    Attributes:
        arrays: all arrays in the results, in order.
        build: accepts a list of arrays, and returns the results with these in place of `arrays`.
    """

    arrays: list[Any]
    build: Callable[[Sequence[Any]], Any] = list

    def __repr__(self) -> str:
        return f"<Flat of {len(self.arrays)} arrays>"


FlatFunction = Callable[[list[Any]], Flat]
"""A function that accepts a list of arrays, and returns its results as `Flat`."""

Differentiated = Callable[[list[Any]], tuple[Flat, Callable[[list[Any]], list[Any]]]]
"""A function prepared for gradients. It accepts a list of arrays, and returns the results and the pullback.

The pullback maps cotangents of the results to cotangents of the arguments.
"""


class Crossing(Protocol):
    """One call of a function of another library. It accepts and returns arrays of the caller's library.

    The index of an argument is its position in the list of arrays. Only arrays of floating-point or complex dtype have
    cotangents. Lists of cotangents have no entries for other arrays.

    Attributes:
        name: the name of the function in errors.
    """

    name: str

    def __call__(
        self, arrays: Sequence[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, Crossing | None]:
        """Call the function.

        Args:
            arrays: the arguments. They may be traced if the library overrides `Autodiff.callback`.
            wanted: the indices of the arguments to differentiate with respect to.

        Returns:
            The results, through which the caller's library does not differentiate, and the `pullback`, which may reuse
            values of this call. The pullback is None if `wanted` is empty.

        Raises:
            TracedValueError: the arguments are traced, and the shapes and dtypes of the results are not known.
        """
        ...

    def pullback(self, count: int, wanted: tuple[int, ...]) -> Crossing:
        """Return the pullback of this function, as a `Crossing`.

        The pullback accepts the arguments, `count` in number, followed by the cotangents of the results. It returns the
        cotangents of the `wanted` arguments.
        """
        ...

    def mapped(self, axes: tuple[int | None, ...], size: int) -> Crossing:
        """Return the vectorised function, as a `Crossing`. `Autodiff.vmap` explains the arguments."""
        ...


class Autodiff(Part):
    """How a library differentiates. The hook `arrayferry_gradients` returns an `Autodiff` for each library.

    Attributes:
        name: the name of the backend.
        takes_numpy: whether compiled functions are called with NumPy arrays, because converting the arrays to the
            library first would be slower. The NumPy arrays own their memory, and have dtypes of the library.
    """

    contract = "arrayferry_functions._contract:AutodiffTests"
    takes_numpy: bool = False

    def compiles(self, function: Callable[..., Any]) -> bool:
        """Return whether a user's function is compiled, so that its gradient may be compiled too."""
        return False

    def flatten(self, value: Any) -> tuple[list[Any], Callable[[list[Any]], Any], Hashable] | None:
        """Flatten the `self` of a compiled method, as the compiler flattens an argument.

        Returns:
            The arrays in `value`, a function that returns `value` with other arrays, and a key for all else in `value`.
            None if the compiler does not flatten `value`. The method is then compiled separately for each `self`.
        """
        return None

    @abstractmethod
    def vjp(
        self, function: FlatFunction, wanted: tuple[int, ...], *, compiled: bool
    ) -> Differentiated:
        """Prepare a function of this library for differentiation.

        Args:
            function: the function. It may itself call functions that `vjp` returned.
            wanted: the indices of the arguments to differentiate with respect to. The tuple may be empty.
            compiled: whether the function may be compiled. If so, the caller reuses the returned function in
                later calls.

        Returns:
            A function that maps a list of arguments to the results of `function` and a pullback. The pullback returns
            the cotangents of the wanted arguments, and may be called several times. This library can differentiate
            both the returned function and the pullback again.
        """

    def gradient(self, function: FlatFunction, count: int, wanted: tuple[int, ...]) -> FlatFunction:
        """Return the pullback of a function, as a function of one list.

        The list contains the `count` arguments of `function`, followed by the cotangents of its results. The pullback
        returns the cotangents of the `wanted` arguments.
        """

        def gradient(values: list[Any]) -> Flat:
            _, pullback = self.vjp(function, wanted, compiled=False)(values[:count])
            return Flat(pullback(values[count:]))

        return gradient

    def vmap(self, function: FlatFunction, axes: tuple[int | None, ...], size: int) -> FlatFunction:
        """Return a function that calls `function` for each index of the mapped axes, and stacks the results on axis 0.

        Args:
            function: a function of this library.
            axes: the mapped axis of each argument, or None for an argument that is not mapped.
            size: the length of the mapped axes.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no vmap. Call the function in a loop, and stack the results."
        )

    @abstractmethod
    def call(self, crossing: Crossing, arrays: Sequence[Any]) -> Flat:
        """Call a function of another library, so that this library can differentiate through the call.

        Args:
            crossing: the call of the function.
            arrays: the arguments, as arrays of this library.

        Returns:
            The results, as arrays of this library. They can be differentiated with respect to the arguments.
        """

    def callback(
        self,
        function: Callable[[list[Any]], Sequence[Any]],
        arrays: Sequence[Any],
        results: Sequence[tuple[tuple[int, ...], str]],
        *,
        name: str,
    ) -> list[Any]:
        """Insert a call of a Python function into traced code. The function is called when that code runs.

        Args:
            function: accepts NumPy arrays, and returns NumPy arrays of the shapes and dtypes in `results`.
            arrays: the arguments, as arrays of this library, some of them traced.
            results: the shape and the dtype of each result.
            name: the name of the function in errors.

        Returns:
            The results, as arrays of this library.

        Raises:
            NotImplementedError: traced code of the library cannot call Python functions.
        """
        raise NotImplementedError(
            f"{self.name} cannot call a function from traced code. Call the function outside of the traced code"
        )

    def uncompiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that the library's compiler calls the function without tracing it."""
        return function


HOOK = "arrayferry_gradients"


def autodiff_of(backend: Backend) -> Autodiff | None:
    """Return the `Autodiff` of a library, or None if the library does not support gradients.

    Examples:
        >>> import arrayferry as af
        >>> from arrayferry_functions import autodiff_of
        >>> autodiff_of(af.backends()["torch"]), autodiff_of(af.backends()["numpy"])
        (<Autodiff torch>, None)
    """
    autodiff: Autodiff | None = registry.parts(HOOK).of(backend)
    return autodiff
