"""`agnostic`: run a function in one library, for callers of any library."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from ._api import device_like, first_array, flatten, kept_conversion
from ._cache import CostlyCache
from ._callables import DEFERRED, DeferredCall, deferred_by_kind, take_receiver, with_receiver
from ._conversion.conversion import Conversion
from ._errors import OptionError, PluginWarning, TracedValueError, describe_error
from ._foreign_call import Expected, ForeignCall, convert_arguments, not_expected, numpy_inward
from ._options import Options
from ._plugin.autodiff import Differentiable, Flat, FlatFunction
from ._plugin.backend import Backend, Target
from ._plugin.call import call_backend, overrides, raise_named
from ._registry.registry import default_registry
from ._tree.layout import Layout

if TYPE_CHECKING:
    from typing import Unpack

    from ._types import Keywords

Function = Callable[..., Any]

P = ParamSpec("P")
R = TypeVar("R")


class Agnostic(Protocol[P, R]):
    """The type of a function decorated with `agnostic`, for type checkers.

    It takes arrays of any library, and such a type cannot be derived from the function's parameters. So its
    arguments are not checked, and its result is `Any`. Editors show the function's own parameters.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R]
    """The function itself, with its own types."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __get__(self, instance: Any, owner: Any = None, /) -> Callable[..., Any]:
        """Return the method, where it is one."""
        ...


class _Decorator(Protocol):
    """The type of the decorator that `agnostic` returns."""

    def __call__(self, function: Callable[P, R], /) -> Agnostic[P, R]: ...


MAX_KEPT = 64
"""Structures of arguments that a differentiable function is kept ready for."""


def agnostic(
    to: Target,
    *,
    differentiable: bool = False,
    result_like: Any = None,
    **options: Unpack[Keywords],
) -> _Decorator:
    """Make a function written for one library accept arrays of any library.

    All arrays in the arguments are converted to the function's library, and all arrays in its result to the library
    and device of the first array in the arguments. A call without an array returns arrays of the function's own
    library.

    With `differentiable=True`, gradients cross too: PyTorch differentiates through a function in JAX, and JAX
    through one in PyTorch, with respect to all arguments of floating-point or complex dtype. The caller is then the
    first other library in the arguments that supports gradients.

    Args:
        to: the library that the function is written for, as `convert` takes it.
        differentiable: whether gradients cross between the libraries.
        result_like: the form of the result, for calls from traced code such as `jax.jit`, where it must be known
            before the function runs: an example, a tree of `jax.ShapeDtypeStruct`, or a function that makes either
            from the arguments. Python numbers stand for 0-d arrays.
        **options: those of `convert`, for the arguments.

    Raises:
        UnknownBackendError: there is no such library.
        OptionError: an option is unknown or has an invalid value, or the library does not support gradients.

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
    registry = default_registry()
    if callable(to):
        raise OptionError(
            "agnostic was given a function instead of a library",
            remedy='Name the library that it is written for: @agnostic("numpy").',
        )
    own = registry.backend(to)
    try:
        chosen = Options(**options)
    except TypeError as error:
        names = ", ".join((*Options._fields, "differentiable", "result_like"))
        raise OptionError(
            f"agnostic has no such option ({error})", remedy=f"The options are {names}."
        ) from None
    inward = Conversion(to, chosen, registry)
    if differentiable and own.autodiff is None:
        having = [name for name, backend in registry.backends().items() if backend.autodiff]
        raise OptionError(
            f"differentiable=True, but {own.name} has no gradients",
            remedy=f"Write the function for one of {', '.join(having)}.",
        )

    def decorate(function: Any) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(decorate(function.__func__))
        if not callable(function):
            raise OptionError(
                f"agnostic was given a {type(function).__name__}, which cannot be called",
                remedy="Decorate the function, below other decorators such as @property.",
            )
        later = deferred_by_kind(function)
        if later is not None and differentiable:
            raise OptionError(
                f"differentiable=True, but {_name_of(function)} is {later[0]}",
                remedy="Decorate a function that returns arrays, and call it from there.",
            )
        called, like, keep_apart = function, result_like, take_receiver(function)
        if keep_apart is not None:
            called = with_receiver(function)
            like = with_receiver(result_like) if callable(result_like) else result_like
        name = _name_of(function)
        wrapper: Function = _plain(called, inward, like, name)
        if later is not None:
            wrapper = _deferred(called, inward)
        elif differentiable:
            wrapper = _differentiable(called, wrapper, inward, like, name, function)
        if keep_apart is not None:
            wrapper = keep_apart(wrapper)
        wrapper = _uncompiled(wrapper) if later is None else DEFERRED[later[1]](wrapper)
        return functools.wraps(function)(wrapper)

    return decorate


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in errors."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _plain(function: Function, inward: Conversion, result_like: Any, name: str) -> Function:
    """Convert the arguments, call the function, and convert its result."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        array, backend = _first_argument(args, kwargs)
        try:
            given, named = inward((args, kwargs)) if kwargs else (inward(args), kwargs)
        except TracedValueError as error:
            return _from_traced(function, inward, result_like, args, kwargs, name, error)
        result = function(*given, **named)
        outward = kept_conversion(backend, device_like(array, backend)) if backend else _as_it_is
        later = DEFERRED.get(type(result))
        if later is not None:
            return later(lambda: (result, inward, outward))()
        return outward(result)

    return wrapper


def _deferred(function: Function, inward: Conversion) -> DeferredCall:
    """Convert the arguments of a function whose results come later, and call it."""

    def start(*args: Any, **kwargs: Any) -> tuple[Any, Function, Function]:
        array, backend = _first_argument(args, kwargs)
        given, named = inward((args, kwargs))
        outward = kept_conversion(backend, device_like(array, backend)) if backend else _as_it_is
        return function(*given, **named), inward, outward

    return start


def _as_it_is(value: Any) -> Any:
    return value


def _first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Find the first array among arguments, and its backend; (None, None) if there is no array.

    A NumPy number counts only where there is no array, since callers of any library may use one.
    """
    number = None
    kind_of = default_registry().kind
    for value in (*args, *kwargs.values()) if kwargs else args:
        array, backend = first_array(value)
        if backend is None:
            continue
        if backend.name != "numpy" or kind_of(array).category != "scalar":
            return array, backend
        number = number or (array, backend)
    return number or (None, None)


def _from_traced(
    function: Function,
    inward: Conversion,
    result_like: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    error: TracedValueError,
) -> Any:
    """Call a function from traced code whenever that code runs."""
    registry = default_registry()
    arrays, layout = flatten((args, kwargs))
    kinds = [registry.kind(array).backend for array in arrays]
    caller = next(
        backend
        for backend, array in zip(kinds, arrays, strict=True)
        if backend is not None and call_backend(backend, "is_traced", array)
    )
    if not overrides(caller, Backend.callback):
        raise error
    if result_like is None:
        raise not_expected(name) from error
    expected = Expected(_example(result_like, args, kwargs), name, caller)
    callers = [index for index, backend in enumerate(kinds) if backend is caller]

    def run(values: list[Any]) -> list[Any]:
        every = list(arrays)  # those of other libraries do not take the way through traced code
        for index, value in zip(callers, values, strict=True):
            every[index] = value
        given, named = inward(layout.unflatten(every))
        return expected.take(function(*given, **named))

    given = [arrays[index] for index in callers]
    return expected.build(caller.callback(run, given, expected.shapes, name=name))


def _example(result_like: Any, args: Any, kwargs: Any) -> Any:
    return result_like(*args, **kwargs) if callable(result_like) else result_like


def _differentiable(
    function: Function,
    plain: Function,
    inward: Conversion,
    result_like: Any,
    name: str,
    original: Function,
) -> Function:
    """Do the same as `plain`, with gradients.

    Args:
        function: the function.
        plain: the wrapper without gradients.
        inward: converts to its library.
        result_like: the form of its result.
        name: its name in errors.
        original: the function as the user wrote it, which may be compiled.
    """
    registry = default_registry()
    by_numpy = numpy_inward(inward)
    kept: CostlyCache[Any, Differentiable] = CostlyCache(MAX_KEPT)

    @functools.lru_cache(4)
    def compiles(own: Backend) -> bool:
        try:
            return own.autodiff is not None and own.autodiff.compiles(original)
        except Exception as error:
            raise_named(own, "autodiff.compiles", error)

    def ready(own: Backend, layout: Layout | int, order: tuple[int, ...]) -> Differentiable:
        """Return the function of the arrays alone, which are given in some order."""
        key = None  # for arguments with other values than arrays, which may differ in each call
        if isinstance(layout, int) or (not layout.has_numbers and compiles(own)):
            key = own, layout, order
            cached = kept.get(key)
            if cached is not None:
                kept.used.add(cached)
                return cached
            if kept.make_room(key) is None:
                key = None
        flat, autodiff = _flat(function, own, inward, layout, order), own.autodiff
        assert autodiff is not None
        made = autodiff.function(flat, compiled=key is not None and compiles(own))
        if key is not None:
            kept[key] = made
        return made

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        own = inward.target
        layout: Layout | int = len(args)
        arrays: Sequence[Any] = args
        kinds = [registry.kind(value) for value in args]
        if kwargs or any(kind.category != "array" for kind in kinds):
            arrays, layout = flatten((args, kwargs))
            kinds = [registry.kind(array) for array in arrays]
        backends = [kind.backend for kind in kinds]
        caller = next((b for b in backends if b is not None and b.autodiff and b is not own), None)
        if caller is None or caller.autodiff is None:
            return plain(*args, **kwargs)
        callers = tuple(index for index, backend in enumerate(backends) if backend is caller)
        fixed = tuple(index for index in range(len(arrays)) if index not in callers)
        held = [arrays[index] for index in fixed if backends[index] is own]
        if held and _any_traced(own, held):
            return plain(*args, **kwargs)  # the function's own library differentiates
        given = [arrays[index] for index in callers]
        expected = None
        if result_like is not None and _any_traced(caller, given):
            expected = Expected(_example(result_like, args, kwargs), name, caller)
        made = ready(own, layout, fixed + callers)
        device = device_like(given[0], caller)

        def placed(places: Sequence[int]) -> Callable[[int], str]:
            return lambda index: _path(layout, places[index])

        crossing = ForeignCall(
            made,
            caller,
            by_numpy if made.takes_numpy and device == "cpu" else inward,
            kept_conversion(caller, device),
            name,
            expected=expected,
            path_of=placed(callers),
            fixed=convert_arguments(inward, [arrays[index] for index in fixed], placed(fixed))
            if fixed
            else (),
        )
        return crossing.build(caller.autodiff.call(crossing, given))

    return wrapper


def _any_traced(backend: Backend, arrays: Sequence[Any]) -> bool:
    try:
        return any(map(backend.is_traced, arrays))
    except Exception:
        return any(call_backend(backend, "is_traced", array) for array in arrays)


def _uncompiled(function: Function) -> Function:
    """Return a function that no compiler of any library looks into."""
    for backend in default_registry().backends().values():
        try:
            wrapped = backend.uncompiled(function)
            if not callable(wrapped):
                raise TypeError(f"it returned a {type(wrapped).__name__}")
        except MemoryError:
            raise
        except Exception as error:
            warnings.warn(
                f"uncompiled() of the backend {backend.name!r} failed ({describe_error(error)}), "
                "so it is not used",
                PluginWarning,
                stacklevel=3,
            )
        else:
            function = wrapped
    return function


def _path(layout: Layout | int, index: int) -> str:
    """Return the place of an argument: `[0]['x']` is in the first one, `[1]['x']` is the keyword argument x, if any."""
    return f"[{index}]" if isinstance(layout, int) else layout.paths[index].removeprefix("[0]")


def _flat(
    function: Function,
    own: Backend,
    inward: Conversion,
    layout: Layout | int,
    order: tuple[int, ...],
) -> FlatFunction:
    """Make a function of arrays alone.

    Args:
        function: the function.
        own: its library.
        inward: converts to that library.
        layout: the layout of its arguments, or the number of arrays that it takes.
        order: the place of each array among the arguments.
    """
    kind_of = default_registry().kind

    def flat(arrays: list[Any]) -> Flat:
        ordered: list[Any] = [None] * len(order)
        for place, array in zip(order, arrays, strict=True):
            ordered[place] = array
        if isinstance(layout, int):
            result = function(*ordered)
        else:
            args, kwargs = layout.unflatten(ordered)
            if inward.options.scalars == "convert":
                args, kwargs = inward((args, kwargs))
            result = function(*args, **kwargs)
        returned, structure = flatten(result)
        if any(kind_of(y).backend is not own for y in returned):  # it returned another library's
            returned = inward(returned)
        return Flat(returned, structure)

    return flat
