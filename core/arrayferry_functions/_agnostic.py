"""`agnostic`: a decorator with which a function written for one library accepts arrays of any library."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from arrayferry import (
    Backend,
    Conversion,
    ConversionError,
    OptionError,
    Options,
    PluginWarning,
    TracedValueError,
    TreeSpec,
    first_array,
    flatten,
    registry,
)
from arrayferry._utilities.cache import CostlyCache
from arrayferry.extending import (
    describe_error,
    device_like,
    exact_key,
    kept_conversion,
    raise_named,
)
from arrayferry.typing import AnyTree, Target

from ._autodiff import HOOK, Flat, FlatFunction, autodiff_of
from ._foreign_call import (
    Compiled,
    Expected,
    ForeignCall,
    any_traced,
    convert_arguments,
    has_callback,
)
from ._wrapper import wrapper_of

if TYPE_CHECKING:
    from typing import Unpack

    from arrayferry.typing import Keywords

Function = Callable[..., Any]
Args = tuple[Any, ...]
Named = dict[str, Any]

P = ParamSpec("P")
R = TypeVar("R")


class Agnostic(Protocol[P, R]):
    """The type of a function decorated with `agnostic`, for type checkers.

    The function accepts arrays of any library, which its own annotations cannot express. So type checkers do not
    check the arguments, and the type of the result is `Any`. Editors show the function's own parameters.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]
    """The function without the decorator, with the types of its annotations."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __get__(self, instance: Any, owner: Any = None, /) -> Callable[..., Any]:
        """Return the function bound to `instance`, or unbound if `instance` is None."""
        ...


MAX_KEPT = 256
"""The maximum number of compiled versions that are cached for one function.

A function is compiled separately for each structure of its arguments, and for each of its gradients.
"""


def agnostic(
    to: Target,
    *,
    differentiable: bool = False,
    result_like: Any = None,
    **options: Unpack[Keywords],
) -> Callable[[Callable[P, R]], Agnostic[P, R]]:
    """Decorate a function that is written for one library, so that it accepts arrays of any library.

    All arrays in the arguments are converted to the function's library. All arrays in the result are converted to the
    library and device of the first array in the arguments. A call without an array returns arrays of the function's
    own library.

    With `differentiable=True`, gradients cross between libraries too. For example, PyTorch differentiates through a
    function written for JAX, with respect to all arguments of floating-point or complex dtype. Results are then
    converted to the library that differentiates. This is the library of the first array in the arguments whose
    library supports gradients and is not the function's own.

    Args:
        to: the library that the function is written for, such as "jax": any target that `convert` accepts.
        differentiable: whether gradients cross between the libraries.
        result_like: the shapes and dtypes of the result. Code that is traced, for example by `jax.jit`, needs them
            before the function runs. Pass an example of the result, a tree of `jax.ShapeDtypeStruct`, or a function
            that accepts the same arguments and returns either of them. Python numbers stand for 0-d arrays.
        **options: the options of `convert` with which the arguments are converted.

    Raises:
        UnknownBackendError: there is no such library.
        OptionError: an option is unknown or has an invalid value, or `differentiable` is True and the library does
            not support gradients.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> import torch
        >>> @af.agnostic("numpy")
        ... def normalise(x):
        ...     return x / np.linalg.norm(x)
        >>> normalise(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
        >>> import jax
        >>> @af.agnostic("jax", differentiable=True)
        ... def energy(x):
        ...     return (x**2).sum()
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> energy(x).backward()
        >>> x.grad
        tensor([2., 4.])
        >>> @af.agnostic("numpy", result_like=lambda x: x)
        ... def sort(x):
        ...     return np.sort(x)
        >>> jax.jit(sort)(jax.numpy.array([3.0, 1.0]))
        Array([1., 3.], dtype=float32)
    """
    if callable(to):
        raise OptionError(
            "agnostic was given a function instead of a library",
            remedy='Name the library that the function is written for: @agnostic("numpy").',
        )
    backend = registry.backend(to)
    try:
        chosen_options = Options(**options)
    except TypeError as error:
        option_names = ", ".join((*Options._fields, "differentiable", "result_like"))
        raise OptionError(
            f"agnostic has no such option ({error})", remedy=f"The options are {option_names}."
        ) from None
    inward = Conversion(to, chosen_options, registry)
    if differentiable and autodiff_of(backend) is None:
        raise OptionError(
            f"differentiable=True needs gradients, and {backend.name} has no gradients",
            remedy=f"Write the function for one of {', '.join(registry.parts(HOOK))}.",
        )

    def decorate(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(decorate(function.__func__))
        if not callable(function):
            raise OptionError(
                f"agnostic was given a {type(function).__name__}, which cannot be called",
                remedy="Decorate a function. Write @agnostic below other decorators such as @property.",
            )
        decorated = _Function(function, inward, result_like)
        _refuse_later_results(function, decorated.name)
        call_method = decorated.across if differentiable else decorated.plain
        wrapper = wrapper_of(call_method, _receiver_test(function))
        return functools.wraps(function)(_uncompiled(wrapper))

    return decorate


class _Function:
    """A function with the decorator `agnostic`.

    Args:
        function: the function that the user wrote.
        inward: converts arguments to the function's library.
        result_like: the shapes and dtypes of the result, as for `agnostic`.
    """

    def __init__(self, function: Function, inward: Conversion, result_like: Any) -> None:
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        short_name = str(name).rpartition("<locals>.")[2]
        self.__setstate__((short_name, function, inward, result_like))

    def __getstate__(self) -> tuple[Any, ...]:
        return self.name, self._function, self._inward, self._result_like

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.name: str
        self.name, self._function, self._inward, self._result_like = state
        self._compiled: CostlyCache[Any, Compiled] = CostlyCache(MAX_KEPT)
        self._is_compiled = functools.lru_cache(4)(functools.partial(_is_compiled, self._function))

    def plain(self, args: Args, kwargs: Named, receiver: Args) -> Any:
        """Convert the arguments, call the function, and convert its result.

        Args:
            args: the arguments.
            kwargs: the keyword arguments.
            receiver: `(self,)` for a method, or `()` for a function. `self` is not converted.
        """
        array, caller, has_columns = _first_argument((*args, *kwargs.values()) if kwargs else args)
        if has_columns:
            args, kwargs = self._read(args, kwargs)
        try:
            converted_args, converted_kwargs = (
                self._inward((args, kwargs)) if kwargs else (self._inward(args), kwargs)
            )
        except TracedValueError as error:
            return self.across(args, kwargs, receiver, error)
        result = self._function(*receiver, *converted_args, **converted_kwargs)
        if caller is None:
            return result
        return kept_conversion(caller, device=device_like(array, caller))(result)

    def _read(self, args: Args, kwargs: Named) -> tuple[Args, Named]:
        """Convert columns and datasets among the arguments one by one. By default, `convert` skips those in a tuple."""

        def read_argument(place: Any, value: AnyTree) -> Any:
            if registry.kind(value).category != "source":
                return value
            try:
                return self._inward(value)
            except ConversionError as error:
                raise error.locate(path=f"[{place!r}]") from None

        read_args = tuple(itertools.starmap(read_argument, enumerate(args)))
        return read_args, {name: read_argument(name, value) for name, value in kwargs.items()}

    def across(
        self, args: Args, kwargs: Named, receiver: Args, refused: TracedValueError | None = None
    ) -> Any:
        """Call the function so that the caller's library can differentiate or trace the call.

        Args:
            args: the arguments.
            kwargs: the keyword arguments.
            receiver: `(self,)` for a method, or `()` for a function. `self` is not converted.
            refused: the error that `plain` caught when it converted traced arguments. None if there was no such error.
        """
        kind_of = registry.catalog.kind
        arrays: Sequence[Any] = args
        if kwargs or any(kind_of(value).category != "array" for value in args):
            args, kwargs = self._read(args, kwargs)
            arrays, layout = flatten((args, kwargs))
        else:
            layout = _positional(len(args))
        backends = [kind_of(array).backend for array in arrays]
        caller = self._caller(arrays, backends, refused)
        if caller is None:
            return self.plain(args, kwargs, receiver)
        caller_indices = [index for index, backend in enumerate(backends) if backend is caller]
        other_indices = [index for index, backend in enumerate(backends) if backend is not caller]
        caller_arrays = [arrays[index] for index in caller_indices]
        like, expected = self._result_like, None
        if like is not None and any_traced(caller, caller_arrays) and has_callback(caller):
            example = like(*receiver, *args, **kwargs) if callable(like) else like
            expected = Expected(example, self.name, caller)
        inward, target, paths = self._inward, self._inward.target, layout.paths
        # numbers are part of the layout, and so of the cache's keys: each would need a compilation
        is_compiled = refused is None and not layout.has_numbers and self._is_compiled(target)
        order = (*other_indices, *caller_indices)
        receiver_leaves, restore, receiver_key = _receiver_parts(receiver, target, is_compiled)
        others = [arrays[i] for i in other_indices], [paths[i] for i in other_indices]
        foreign_call = ForeignCall(
            self.name,
            _flat(self._function, inward, layout, order, restore),
            (target, layout, order, receiver_key),
            caller,
            inward,
            kept_conversion(caller, device=device_like(caller_arrays[0], caller)),
            [*receiver_leaves, *convert_arguments(inward, *others)],
            [paths[index] for index in caller_indices],
            self._compiled if is_compiled else None,
            lambda _: expected,
        )
        autodiff = autodiff_of(caller) if refused is None else None
        if autodiff is not None:
            flat_results = autodiff.call(foreign_call, caller_arrays)
        else:
            flat_results, _ = foreign_call(caller_arrays, ())
        return flat_results.build(flat_results.arrays)

    def _caller(
        self,
        arrays: Sequence[Any],
        backends: Sequence[Backend | None],
        refused: TracedValueError | None,
    ) -> Backend | None:
        """Return the caller's library, or None if `plain` can make the call.

        If `refused` is an error, the caller's library is that of the first traced array. Otherwise, it is that of the
        first array whose library supports gradients and is not the function's own.
        """
        target = self._inward.target
        array_pairs = [(x, b) for x, b in zip(arrays, backends, strict=True) if b is not None]
        if refused is not None:
            traced_backend = next((b for x, b in array_pairs if any_traced(b, [x])), None)
            if traced_backend is None:
                raise refused
            return traced_backend
        if any_traced(target, [x for x, b in array_pairs if b is target]):
            return None  # the function's own library traces the call, and so can differentiate it
        return next((b for _, b in array_pairs if b is not target and autodiff_of(b)), None)


@functools.lru_cache(16)
def _positional(count: int) -> TreeSpec:
    """Return the layout of a call with `count` arrays as positional arguments, and no keyword arguments."""
    return flatten(((None,) * count, {}), everything=True)[1]


def _is_compiled(function: Function, backend: Backend) -> bool:
    """Return whether a compiler of the backend's library, such as `jax.jit`, returned the function."""
    return bool(_asked(backend, "compiles", function))


def _asked(backend: Backend, method: str, value: AnyTree) -> Any:
    """Call a method of the backend's `Autodiff` with a value. Return None if there is no `Autodiff`."""
    try:
        autodiff = autodiff_of(backend)
        return None if autodiff is None else getattr(autodiff, method)(value)
    except Exception as error:
        raise_named(backend, f"autodiff.{method}", error)


def _first_argument(values: Sequence[Any]) -> tuple[Any, Backend | None, bool]:
    """Return the first array in the arguments, its backend, and whether an argument is a column or dataset.

    The array and the backend are None if there is no array. A NumPy number counts as an array only if there is no
    other array, since callers that use other libraries pass NumPy numbers too.
    """
    array_and_backend: tuple[Any, Backend | None] | None = None
    number_and_backend: tuple[Any, Backend | None] = None, None
    has_columns = False
    kind_of = registry.catalog.kind
    for value in values:
        kind = kind_of(value)
        if kind.category == "source":
            has_columns = True
        elif array_and_backend is None:
            candidate = (value, kind.backend) if kind.category == "array" else first_array(value)
            if candidate[1] is not None and kind_of(candidate[0]).category == "scalar":
                number_and_backend = number_and_backend if number_and_backend[1] else candidate
            elif candidate[1] is not None:
                array_and_backend = candidate
    array, backend = array_and_backend or number_and_backend
    return array, backend, has_columns


Restore = Callable[[list[Any]], Args]
"""Returns `(self,)` for a method, or `()` for a function. It accepts the arrays of `self` that are arguments."""


def _receiver_parts(
    receiver: Args, backend: Backend, is_compiled: bool
) -> tuple[Sequence[Any], Restore, Any]:
    """Return the arrays of a receiver that are arguments, a function that restores the receiver, and its key.

    Args:
        receiver: `(self,)` for a method, or `()` for a function.
        backend: the backend of the function's library.
        is_compiled: whether the function is compiled. If not, no arrays are arguments, and there is no key.
    """
    if not (receiver and is_compiled):
        return (), lambda _: receiver, None
    flattened = _asked(backend, "flatten", *receiver)
    if flattened is None:
        return (), lambda _: receiver, exact_key(receiver)
    arrays, unflatten, key = flattened
    return arrays, lambda arrays: (unflatten(arrays),), key


def _flat(
    function: Function,
    inward: Conversion,
    layout: TreeSpec,
    order: tuple[int, ...],
    restore: Restore,
) -> FlatFunction:
    """Return a function that accepts a list of arrays, and calls `function` with them as its arguments.

    Args:
        function: the function to call.
        inward: converts arrays to the function's library.
        layout: the structure of the arguments and keyword arguments of `function`.
        order: for each array of the list after those of the receiver, its index among the leaves of the layout.
        restore: restores the receiver from the first arrays of the list.
    """
    target, kind_of = inward.target, registry.catalog.kind

    def flat_function(arrays: list[Any]) -> Flat:
        num_receiver_arrays = len(arrays) - len(order)
        receiver = restore(arrays[:num_receiver_arrays])
        arrays_by_index = dict(zip(order, arrays[num_receiver_arrays:], strict=True))
        args, kwargs = layout.unflatten([arrays_by_index[index] for index in range(len(order))])
        if inward.options.scalars == "convert":
            args, kwargs = inward((args, kwargs))
        returned_arrays, result_layout = flatten(function(*receiver, *args, **kwargs))
        if not all(kind_of(y).is_array_of(target) for y in returned_arrays):
            returned_arrays = inward(returned_arrays)
        return Flat(returned_arrays, result_layout.unflatten)

    return flat_function


def _uncompiled(function: Function) -> Function:
    """Wrap a function so that no library's compiler traces it."""
    for autodiff in registry.parts(HOOK).values():
        try:
            wrapped = autodiff.uncompiled(function)
            if not callable(wrapped):
                raise TypeError(f"it returned a {type(wrapped).__name__} instead of a function")
        except MemoryError:
            raise
        except Exception as error:
            cause_text = describe_error(error)
            warning_text = f"uncompiled() of {autodiff!r} failed ({cause_text}), so it is not used"
            warnings.warn(warning_text, PluginWarning, stacklevel=3)
        else:
            function = wrapped
    return function


def _receiver_test(function: Callable[..., Any]) -> Callable[[Any], bool] | None:
    """Return a function that tests whether the first argument is `self`, or None if `function` is not a method.

    `self` is not converted, even if it is a structure of arrays such as a dataclass, since a method may change it.
    """
    if hasattr(inspect.unwrap(function), "__self__"):  # callers of a bound method pass no `self`
        return None
    owner_name, _, name = getattr(function, "__qualname__", "").rpartition(".")
    module_name = getattr(function, "__module__", None)
    try:
        first_is_self = [*inspect.signature(function).parameters][:1] == ["self"]
    except (TypeError, ValueError):
        first_is_self = False
    if not first_is_self and (not owner_name or owner_name.endswith("<locals>")):
        return None

    return functools.partial(_is_receiver, owner_name, name, module_name, first_is_self)


def _is_receiver(owner: str, name: str, module: str | None, named: bool, value: AnyTree) -> bool:
    for base in type(value).__mro__:
        if base.__qualname__ == owner and base.__module__ == module:
            return not isinstance(base.__dict__.get(name), staticmethod)
    return named


def _refuse_later_results(function: Callable[..., Any], name: str) -> None:
    """Refuse a function that returns a coroutine or a generator.

    Raises:
        OptionError: the function returns a coroutine or a generator.
    """
    tests = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    if any(is_kind(function) for is_kind in tests):
        raise OptionError(
            f"{name} returns a coroutine or a generator, so its results cannot be converted",
            remedy="Decorate a function that returns arrays, and call it from the coroutine or generator.",
        )
