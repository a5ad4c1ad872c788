"""Calls of a function of one library with arrays of another, from traced code or with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from arrayferry import (
    Backend,
    Conversion,
    ConversionError,
    OptionError,
    Options,
    TracedValueError,
    TreeSpec,
    fit_dtype,
    flatten,
    registry,
)
from arrayferry._utilities.cache import CostlyCache
from arrayferry._utilities.text import short_repr
from arrayferry.extending import (
    call_backend,
    cast_checked,
    dtype_info,
    dtype_name,
    dtype_named,
    exact_key,
    kept_conversion,
    overrides,
    target_dtype,
)
from arrayferry.typing import AnyArray, AnyTree

from ._autodiff import Autodiff, Differentiated, Flat, FlatFunction, autodiff_of

_DEFAULTS = Options()


class Expected:
    """The expected result of a function that is called from traced code.

    Args:
        example: a tree of arrays, or of objects with `shape` and `dtype`. Python numbers stand for 0-d
            arrays. All other values occur unchanged in the result.
        name: the name of the function in errors.
        caller: the library of the results. A dtype of the example is narrowed if this library lacks it.

    Attributes:
        layout: the structure of the example.
        shapes: the shape and the dtype of each array in the result.

    Raises:
        OptionError: the example contains no array.
    """

    def __init__(self, example: AnyTree, name: str, caller: Backend) -> None:
        self._name = name
        leaves, self.layout = flatten(example, everything=True, prefix="result")
        self._leaves = [_form_of(leaf, caller) or leaf for leaf in leaves]
        self.shapes = [leaf for leaf in self._leaves if type(leaf) is _Form]
        if not self.shapes:
            raise OptionError(
                f"result_like={example!r:.80} contains no array",
                remedy="Pass an example of what the function returns, or a tree of jax.ShapeDtypeStruct.",
            )

    def build(self, arrays: Sequence[Any]) -> Any:
        """Return the example, with these arrays in place of its own."""
        remaining_arrays = iter(arrays)
        leaves = [next(remaining_arrays) if type(leaf) is _Form else leaf for leaf in self._leaves]
        return self.layout.unflatten(leaves)

    def ordered(self, function: FlatFunction, inward: Conversion) -> FlatFunction:
        """Wrap a function so that its arrays have the order of the example, in which callers pass cotangents.

        The wrapped function raises the errors of `take`, except that dtypes are not narrowed. Its arrays also include
        the Python numbers for which the example has 0-d arrays.

        Args:
            function: the function.
            inward: converts arrays to the library of the function.
        """
        kind_of = registry.catalog.kind

        def ordered_function(arrays: list[Any]) -> Flat:
            flat_results = function(arrays)
            result = flat_results.build(flat_results.arrays)
            leaves, layout = flatten(result, everything=True, prefix="result")
            forms = self._forms_in(leaves, layout)
            ordered_arrays = []
            for index, form, path in forms:
                x = leaves[index]
                if kind_of(x).is_array_of(inward.target):
                    self._check(x, form, path)
                else:
                    (x,) = inward([self._fit(x, form, path)])
                ordered_arrays.append(x)

            def build(arrays: Sequence[Any]) -> Any:
                new_leaves = list(leaves)
                for (index, *_), x in zip(forms, arrays, strict=True):
                    if kind_of(leaves[index]).category != "number":
                        new_leaves[index] = x
                return layout.unflatten(new_leaves)

            return Flat(ordered_arrays, build)

        return ordered_function

    def take(self, result: AnyTree) -> list[Any]:
        """Return the arrays of a result as NumPy arrays of the expected shapes and dtypes.

        Raises:
            ConversionError: the result differs from the example in its structure, in a shape, in the kind of a dtype
                (such as "float"), or in a value that is a string, an `Enum` or None.
            NarrowingError: a number cannot be represented in the expected dtype.
        """
        leaves, layout = flatten(result, everything=True, prefix="result")
        forms = self._forms_in(leaves, layout)
        return [self._fit(leaves[index], form, path) for index, form, path in forms]

    def _forms_in(self, leaves: list[Any], layout: TreeSpec) -> list[tuple[int, _Form, str]]:
        """Find the arrays of the example in a result.

        Args:
            leaves: the leaves of the result.
            layout: the layout of the result.

        Returns:
            For each array of the example: the index of its leaf in the result, its shape and dtype, and its path.
        """
        order = self.layout.order_in(layout)
        if order is None:
            raise self._differs(f"the structure {layout!r}", f"{self.layout!r}")
        forms: list[tuple[int, _Form, str]] = []
        for index, path, leaf in zip(order, self.layout.paths, self._leaves, strict=True):
            value = leaves[index]
            if type(leaf) is _Form:
                forms.append((index, leaf, path))
            elif _is_compared(value, leaf) and exact_key(value) != exact_key(leaf):
                raise self._differs(short_repr(value), short_repr(leaf), path)
        return forms

    def _fit(self, value: AnyTree, form: _Form, path: str) -> Any:
        """Return a leaf of a result as a NumPy array of the expected shape and dtype."""
        (x,) = kept_conversion("numpy", scalars="convert")([value])
        self._check(x, form, path)
        wanted_dtype = dtype_named(form.dtype)
        if wanted_dtype is None or x.dtype.name == form.dtype:
            return x
        return cast_checked(x, wanted_dtype, self._name)

    def _check(self, x: AnyArray, form: _Form, path: str) -> None:
        """Raise an error for an array whose shape or kind of dtype is not the expected one."""
        shape = getattr(x, "shape", None)
        if shape is None or tuple(shape) != form.shape:
            raise self._differs(f"the shape {shape}", f"{form.shape}", path)
        name = dtype_name(x.dtype)
        if name == form.dtype:
            return
        actual, wanted = dtype_named(name), dtype_named(form.dtype)
        if actual is None or wanted is None or dtype_info(actual).kind != dtype_info(wanted).kind:
            raise self._differs(f"the dtype {name}", form.dtype, path)

    def _differs(self, actual: str, expected: str, path: str = "") -> ConversionError:
        return ConversionError(
            f"{self._name} returned {actual}, where result_like says {expected}",
            remedy="Pass an example of the function's result as result_like.",
            path=path,
        )


def _is_compared(*values: AnyTree) -> bool:
    """Return whether any of these values is a string, bytes, an enum or None. Result and example must then be equal."""
    return any(isinstance(value, (str, bytes, type(None), Enum)) for value in values)


class _Form(NamedTuple):
    """The shape and the dtype of an array."""

    shape: tuple[int, ...]
    dtype: str


def _form_of(leaf: AnyTree, caller: Backend) -> _Form | None:
    """Return the shape of a leaf and its dtype in the caller's library, or None if the leaf is not an array."""
    if isinstance(leaf, (bool, int, float, complex)):
        return _Form((), call_backend(caller, "number_dtype", type(leaf).__name__))
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return None
    numpy_dtype = dtype_named(dtype_name(dtype))
    if numpy_dtype is None:
        raise OptionError(
            f"result_like has the dtype {dtype}, which is not known. Pass a dtype of NumPy or ml_dtypes"
        )
    return _Form(tuple(map(int, shape)), target_dtype(numpy_dtype, caller, "checked")[0].name)


Saved = Callable[[Sequence[Any]], list[Any]]
"""A pullback. It accepts cotangents of the caller's library, and returns cotangents of the function's library."""


class Compiled:
    """A compiled function, for all calls with equal keys.

    Attributes:
        function: the function of the latest call.
        differentiated: calls `function`, and is prepared for gradients.
    """

    def __init__(self, autodiff: Autodiff, function: FlatFunction, wanted: tuple[int, ...]) -> None:
        self.function = function
        self.differentiated: Differentiated = autodiff.vjp(
            lambda arrays: self.function(arrays), wanted, compiled=True
        )


@dataclass(eq=False)
class ForeignCall:
    """One call of a function of another library. See `Crossing`.

    Args:
        name: the name of the function in errors.
        function: the function. Its arguments are `others`, then the caller's arrays and, in a pullback, cotangents.
        key: identifies the function in the keys of `cache`.
        caller: the library of the caller.
        inward: converts arrays to the library of the function.
        outward: converts arrays to the library of the caller.
        others: the arrays in the arguments that are not of the caller's library, converted to the function's library.
        paths: the path of each of the caller's arrays in the arguments, for errors.
        cache: the functions compiled for earlier calls, or None if the function is not compiled.
        expect: returns the `Expected` result for the caller's arrays, or None if it is not known.
        count: the number of the caller's arrays that are arguments of the function, if this is the call of a pullback.
            The remaining arrays are cotangents.
        saved: the pullback that the function's library returned, if this is the call of a pullback. It computes the
            cotangents without another call of the function, and is used only if the arguments are not traced.
    """

    name: str
    function: FlatFunction
    key: tuple[Any, ...]
    caller: Backend
    inward: Conversion
    outward: Conversion
    others: Sequence[Any]
    paths: Sequence[str]
    cache: CostlyCache[Any, Compiled] | None
    expect: Callable[[Sequence[Any]], Expected | None]
    count: int = 0
    saved: Saved | None = None

    def __call__(
        self, arrays: Sequence[Any], wanted: tuple[int, ...]
    ) -> tuple[Flat, ForeignCall | None]:
        if has_callback(self.caller) and any_traced(self.caller, arrays):
            caller_results, pullback = self._called_back(arrays), None
        else:
            foreign_results, pullback = self._run(arrays, wanted, self.saved)
            caller_results = Flat(self.outward(foreign_results.arrays), foreign_results.build)
        return caller_results, self.pullback(len(arrays), wanted, pullback) if wanted else None

    def _called_back(self, arrays: Sequence[Any]) -> Flat:
        """Insert a call of the function into the caller's traced code. The function is called when that code runs."""
        expected = self.expect(arrays)
        if expected is None:
            raise TracedValueError(
                f"{self.name} is called from a traced function, so the shapes and dtypes of its result must be known "
                "before it runs",
                remedy="Pass result_like= to agnostic: an example of the result, or a function that returns an example "
                "for the arguments.",
            )
        saved_pullback = None if any_traced(self.caller, arrays[: self.count]) else self.saved

        def run_function(values: list[Any]) -> list[Any]:
            flat_results, _ = self._run(values, (), saved_pullback)
            return expected.take(flat_results.build(flat_results.arrays))

        autodiff = autodiff_of(self.caller)
        assert autodiff is not None
        result_arrays = autodiff.callback(run_function, arrays, expected.shapes, name=self.name)
        return Flat(result_arrays, expected.build)

    def _run(
        self, arrays: Sequence[Any], wanted: tuple[int, ...], saved: Saved | None
    ) -> tuple[Flat, Saved | None]:
        """Call the function with arrays that are not traced. Return its results and its pullback.

        If `saved` is not None, call `saved` instead of the function, and return None in place of a pullback.
        """
        if saved is not None:
            return Flat(saved(arrays[self.count :])), None
        run, convert = self._prepared(self._places(wanted))
        flat_results, pull = run([*self.others, *convert_arguments(convert, arrays, self.paths)])
        return flat_results, lambda cotangents: pull(convert(list(cotangents)))

    def _prepared(
        self, wanted: tuple[int, ...]
    ) -> tuple[Differentiated, Callable[[list[Any]], list[Any]]]:
        """Return a `Differentiated`, and a function with which to convert its arguments."""
        inward, cache, key = self.inward, self.cache, (*self.key, wanted)
        autodiff, options = autodiff_of(inward.target), inward.options
        if autodiff is None or (cache is None and not wanted):
            return lambda arrays: (self.function(arrays), list), inward
        if cache is not None:
            compiled = cache.get(key)
            if compiled is None and cache.make_room(key) is not None:
                compiled = cache[key] = Compiled(autodiff, self.function, wanted)
            if compiled is not None:
                cache.used.add(compiled)
                # the compiler may call the function again, for arrays of other shapes: by then, objects that an
                # earlier call passed may have been modified
                compiled.function = self.function
                takes_numpy = autodiff.takes_numpy and self.outward.options.device == "cpu"
                has_defaults = options._replace(narrowing=_DEFAULTS.narrowing) == _DEFAULTS
                return (
                    compiled.differentiated,
                    self._as_numpy if takes_numpy and has_defaults else inward,
                )
        return autodiff.vjp(self.function, wanted, compiled=False), inward

    def _as_numpy(self, arrays: list[Any]) -> list[Any]:
        """Return NumPy arrays that own their memory, with dtypes of the function's library."""
        target, narrowing = self.inward.target, self.inward.options.narrowing
        return [
            fit_dtype(x, target, narrowing) for x in kept_conversion("numpy", copy=True)(arrays)
        ]

    def _places(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of some of the caller's arrays among the arguments of the function."""
        return tuple(len(self.others) + index for index in indices)

    def pullback(
        self, count: int, wanted: tuple[int, ...], saved: Saved | None = None
    ) -> ForeignCall:
        """Return the pullback of the function, as a `ForeignCall`. See `Crossing.pullback`."""
        autodiff, name = autodiff_of(self.inward.target), f"the gradient of {self.name}"
        assert autodiff is not None
        (num_arguments, *wanted_positions) = self._places((count, *wanted))
        function, order = self.function, None
        # without a saved pullback, the results were expected, and cotangents have their order
        expected = None if self.count or saved is not None else self.expect(())
        if expected is not None:
            function, order = expected.ordered(function, self.inward), expected.layout

        # the cotangent of an argument has the dtype and shape of the argument
        def expect(arrays: Sequence[Any]) -> Expected:
            return Expected([arrays[index] for index in wanted], name, self.caller)

        return replace(
            self,
            key=(*self.key, (count, wanted, order)),
            name=name,
            function=autodiff.gradient(function, num_arguments, tuple(wanted_positions)),
            expect=expect,
            count=count,
            saved=saved,
        )

    def mapped(self, axes: tuple[int | None, ...], size: int) -> ForeignCall:
        """Return the vectorised function, as a `ForeignCall`. See `Crossing.mapped`."""
        autodiff = autodiff_of(self.inward.target)
        assert autodiff is not None
        mapped_function = autodiff.vmap(self.function, (*[None] * len(self.others), *axes), size)
        return replace(self, key=(*self.key, (axes, size)), function=mapped_function, saved=None)


def has_callback(backend: Backend) -> bool:
    """Return whether traced code of a backend's library can call functions."""
    autodiff = autodiff_of(backend)
    return autodiff is not None and overrides(autodiff, Autodiff.callback)


def any_traced(backend: Backend, arrays: Sequence[Any]) -> bool:
    """Return whether any of these arrays of a backend is traced."""
    return any(call_backend(backend, "is_traced", array) for array in arrays)


def convert_arguments(
    convert: Callable[[list[Any]], list[Any]], arrays: Sequence[Any], paths: Sequence[str]
) -> list[Any]:
    """Convert arguments. An error names the path of the argument that cannot be converted.

    Args:
        convert: converts a list of arguments.
        arrays: the arguments.
        paths: the path of each argument.
    """
    try:
        return convert(list(arrays))
    except ConversionError:
        for x, path in zip(arrays, paths, strict=False):
            try:
                convert([x])
            except ConversionError as error:
                error.path = path.removeprefix("[0]")
                raise
        raise
