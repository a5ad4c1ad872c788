"""Calls of functions across libraries: from traced code, and with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from ._api import flatten, kept_conversion
from ._conversion.conversion import Conversion
from ._dtypes import dtype_info, dtype_name, dtype_named
from ._errors import ConversionError, OptionError, TracedValueError
from ._options import Options
from ._plugin.autodiff import Differentiable, Flat
from ._plugin.backend import Backend
from ._repr import short_repr
from ._route.dtypes import target_dtype
from ._route.narrowing import cast_checked, fit_dtype
from ._tree.keys import exact_key

_NUMBERS_TOO = Options(scalars="convert")


def not_expected(name: str) -> TracedValueError:
    """Return the error for a call whose result is not known before it runs."""
    return TracedValueError(
        f"{name} is called from a traced function, and what it returns must be known before it runs",
        remedy="Pass result_like= to agnostic: an example of what it returns, or a function that makes "
        "one of the arguments.",
    )


class Expected:
    """The expected result of a function that is called from traced code.

    Args:
        example: a tree of arrays, or of anything with `shape` and `dtype`; Python numbers stand for 0-d
            arrays. Everything else is returned unchanged.
        name: the name of the function in errors.
        caller: the library of the results, which may lack dtypes.

    Attributes:
        shapes: the shape and the dtype of each array.

    Raises:
        OptionError: the example holds no array.
    """

    def __init__(self, example: Any, name: str, caller: Backend) -> None:
        self._name = name
        leaves, self._layout = flatten(example, everything=True, prefix="result")
        self._others = {}
        self.shapes: list[tuple[tuple[int, ...], str]] = []
        for index, leaf in enumerate(leaves):
            spec = _shape_of(leaf, caller)
            if spec is None:
                self._others[index] = leaf
            else:
                self.shapes.append(spec)
        if not self.shapes:
            raise OptionError(
                f"result_like={example!r:.80} holds no array",
                remedy="Pass an example of what the function returns, or a tree of jax.ShapeDtypeStruct.",
            )

    def build(self, arrays: Sequence[Any]) -> Any:
        """Put the result together around its arrays."""
        rest = iter(arrays)
        count = len(self._layout.paths)
        others = self._others
        return self._layout.unflatten(
            [others[index] if index in others else next(rest) for index in range(count)]
        )

    def take(self, result: Any) -> list[Any]:
        """Return the arrays of a result as NumPy arrays of the expected shapes and dtypes.

        Raises:
            ConversionError: the result has another structure, shape or kind.
            NarrowingError: a number does not fit the dtype.
        """
        leaves, layout = flatten(result, everything=True, prefix="result")
        order = self._layout.order_in(layout)
        if order is None:
            raise self._differs(f"the structure {layout!r}", f"{self._layout!r}")
        leaves = [leaves[index] for index in order]
        for index, other in self._others.items():
            value = leaves[index]
            plain = isinstance(other, _PLAIN) or isinstance(value, _PLAIN)
            if plain and exact_key(value) != exact_key(other):
                raise self._differs(short_repr(value), short_repr(other), self._layout.paths[index])
        arrays = [leaf for index, leaf in enumerate(leaves) if index not in self._others]
        paths = [path for index, path in enumerate(self._layout.paths) if index not in self._others]
        values = kept_conversion("numpy", *_NUMBERS_TOO)(arrays)
        return [
            self._fit(array, shape, dtype, path)
            for array, (shape, dtype), path in zip(values, self.shapes, paths, strict=True)
        ]

    def _fit(self, x: Any, shape: tuple[int, ...], dtype: str, path: str) -> Any:
        if getattr(x, "shape", None) != shape:
            raise self._differs(f"the shape {getattr(x, 'shape', None)}", f"{shape}", path)
        if x.dtype.name == dtype:
            return x
        wanted = dtype_named(dtype)
        if wanted is None or dtype_info(x.dtype).kind != dtype_info(wanted).kind:
            raise self._differs(f"the dtype {x.dtype}", dtype, path)
        return cast_checked(x, wanted, self._name)

    def _differs(self, actual: str, expected: str, path: str = "") -> ConversionError:
        return ConversionError(
            f"{self._name} returned {actual}, where result_like says {expected}",
            remedy="Pass an example of what it returns as result_like.",
            path=path,
        )


_PLAIN = (str, bytes, type(None), Enum)
"""Types of values that are compared with the example."""


def _shape_of(leaf: Any, caller: Backend) -> tuple[tuple[int, ...], str] | None:
    """Return the shape of an example, and the dtype that the caller's library has for it."""
    if isinstance(leaf, (bool, int, float, complex)):
        return (), caller.number_dtype(type(leaf).__name__)
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return None
    name = dtype_name(dtype)
    numpy_dtype = dtype_named(name)
    if numpy_dtype is None:
        raise OptionError(f"result_like names the dtype {dtype}, which is not known")
    return tuple(map(int, shape)), target_dtype(numpy_dtype, caller, "checked")[0].name


def numpy_inward(inward: Conversion) -> Callable[[list[Any]], list[Any]]:
    """Return a function that converts a list of arrays for a function that takes NumPy arrays.

    Args:
        inward: converts to the library of the function.
    """
    narrowing = inward.options.narrowing
    if inward.options != Options(narrowing=narrowing):
        return inward
    to_numpy = kept_conversion("numpy", copy=True)

    def enter(arrays: list[Any]) -> list[Any]:
        own, values = inward.target, to_numpy(arrays)
        for index, x in enumerate(values):
            try:
                values[index] = fit_dtype(x, own, narrowing)
            except ConversionError as error:
                raise error.locate(path=f"[{index}]", target=own.name) from None
        return values

    return enter


def convert_arguments(
    inward: Callable[[list[Any]], list[Any]],
    arrays: Sequence[Any],
    path_of: Callable[[int], str] | None,
) -> list[Any]:
    """Convert arguments, and name the place of one that cannot be converted."""
    try:
        return inward(list(arrays))
    except ConversionError as error:
        if path_of is not None and error.path:
            first, _, rest = error.path[1:].partition("]")
            error.path = path_of(int(first)) + rest
        raise


class Pullback:
    """The product of cotangents with the Jacobian of a call.

    Args:
        own: the same in the library of the function.
        inward: converts a list of arrays for the function.
        outward: converts to the library of the caller.
    """

    def __init__(
        self,
        own: Callable[[list[Any]], list[Any]],
        inward: Callable[[list[Any]], list[Any]],
        outward: Conversion,
    ) -> None:
        self._own = own
        self._inward = inward
        self._outward = outward

    def __call__(self, cotangents: Sequence[Any]) -> list[Any]:
        return self._outward(self.raw(cotangents))

    def raw(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return arrays of the library of the function."""
        return self._own(self._inward(list(cotangents)))


class ForeignCall:
    """One call of a function of another library. All arrays are those of the caller's library.

    Args:
        function: the function, of the fixed arguments and then of the caller's arrays.
        caller: the library of the caller.
        inward: converts a list of arrays for the function.
        outward: converts to the library of the caller.
        name: the name of the function in errors.
        expected: the expected result, None if it is not known.
        path_of: returns the place of an argument, for errors.
        fixed: arguments that have no gradient, in the library of the function.
    """

    def __init__(
        self,
        function: Differentiable,
        caller: Backend,
        inward: Callable[[list[Any]], list[Any]],
        outward: Conversion,
        name: str,
        *,
        expected: Expected | None = None,
        path_of: Callable[[int], str] | None = None,
        fixed: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self._function = function
        self._caller = caller
        self._inward = inward
        self._outward = outward
        self._expected = expected
        self._path_of = path_of
        self._fixed = list(fixed)
        self._seen: dict[str, Any] = {}  # how to put the results in their places
        self._pullback: Pullback | None = None
        self._count = 0
        self._like: tuple[int, ...] | None = None

    def build(self, results: Sequence[Any]) -> Any:
        """Put the results of the last call in their places."""
        return self._seen["build"](results)

    @property
    def prepared(self) -> bool:
        """Whether `run` uses the results of an earlier `vjp`."""
        return self._pullback is not None

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Call the function with values. Its result has no gradient."""
        if self._pullback is not None:
            return self._pullback(arrays[self._count :])
        return self._returned(self._function(self._entered(arrays)))

    def vjp(self, arrays: Sequence[Any], wanted: tuple[int, ...]) -> tuple[list[Any], Pullback]:
        """Call the function, and prepare the product of cotangents with its Jacobian."""
        flat, pullback = self._function.vjp(self._entered(arrays), self._numbers(wanted))
        return self._returned(flat), Pullback(pullback, self._inward, self._outward)

    def transposed(
        self,
        count: int,
        wanted: tuple[int, ...],
        pullback: Pullback | None = None,
    ) -> ForeignCall:
        """Return the call from `count` arguments and cotangents to cotangents."""
        function = self._function.transposed(len(self._fixed) + count, self._numbers(wanted))
        call = self._derived(function, f"the gradient of {self.name}")
        call._like = wanted
        call._pullback, call._count = pullback, count
        return call

    def pushed(self, count: int, wanted: tuple[int, ...]) -> ForeignCall:
        """Return the call from `count` arguments and tangents to tangents."""
        function = self._function.pushed(len(self._fixed) + count, self._numbers(wanted))
        return self._derived(function, f"the tangent of {self.name}")

    def mapped(self, axes: tuple[int | None, ...], size: int) -> ForeignCall:
        """Return the call that maps over an axis of its arguments."""
        function = self._function.mapped((*[None] * len(self._fixed), *axes), size)
        call = self._derived(function, self.name)
        call._seen = self._seen
        return call

    def shapes(self, arrays: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
        """Return the shapes and dtypes of the results, where the arguments are traced."""
        if self._like is not None:  # gradients are like the arguments
            example = [arrays[index] for index in self._like]
            self._expected = Expected(example, self.name, self._caller)
        if self._expected is None:
            raise not_expected(self.name)
        self._seen["build"] = self._expected.build
        return self._expected.shapes

    def on_host(self, arrays: Sequence[Any]) -> list[Any]:
        """Call the function with NumPy arrays, and return NumPy arrays of the expected `shapes`."""
        assert self._expected is not None
        if self._pullback is not None:
            return self._expected.take(self._pullback.raw(arrays[self._count :]))
        flat = self._function(self._entered(arrays))
        result = flat.arrays if flat.layout is None else flat.layout.unflatten(flat.arrays)
        return self._expected.take(result)

    def _derived(self, function: Differentiable, name: str) -> ForeignCall:
        return ForeignCall(
            function, self._caller, self._inward, self._outward, name, fixed=self._fixed
        )

    def _numbers(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of the caller's arrays among the arguments of the function."""
        return tuple(len(self._fixed) + index for index in indices)

    def _entered(self, arrays: Sequence[Any]) -> list[Any]:
        """Convert arguments to the library of the function."""
        return [*self._fixed, *convert_arguments(self._inward, arrays, self._path_of)]

    def _returned(self, flat: Flat) -> list[Any]:
        """Convert results to the library of the caller."""
        if flat.layout is not None:
            self._seen["build"] = flat.layout.unflatten
        results: list[Any] = self._outward(flat.arrays)
        return results
