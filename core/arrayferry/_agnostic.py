"""`agnostic`: run a function in one library, for callers of any library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ._api import device_like, first_array, kept_conversion
from ._conversion.conversion import Conversion
from ._errors import OptionError
from ._options import Options
from ._plugin.backend import Target
from ._registry.registry import default_registry

__all__ = ["agnostic"]

P = ParamSpec("P")
R = TypeVar("R")


def agnostic(to: Target, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function that is written for one library work for callers of any library.

    All arrays among the arguments are converted to the library of the function, and all arrays in its
    result to the library and device of the first array among the arguments. A call without an array
    returns arrays of the function's own library.

    Args:
        to: the library that the function is written for, as `convert` takes it.
        **options: those of `convert`, for the arguments.

    Raises:
        UnknownBackendError: there is no such library.
        OptionError: an option is unknown or has an invalid value.

    Example:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> import torch
        >>> @af.agnostic("numpy")
        ... def normalise(x):
        ...     return x / np.linalg.norm(x)
        >>> normalise(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """
    registry = default_registry()
    if callable(to):
        raise OptionError(
            "agnostic was given a function instead of a library",
            remedy='Name the library that it is written for: @agnostic("numpy").',
        )
    registry.backend(to)
    try:
        chosen = Options(**options)
    except TypeError as error:
        raise OptionError(
            f"agnostic has no such option ({error})",
            remedy=f"The options are {', '.join(Options._fields)}.",
        ) from None
    inside: Any = Conversion(to, chosen, registry)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            array, backend = _first_argument(args, kwargs)
            call: Any = function
            if kwargs:
                given, named = inside((args, kwargs))
                result: R = call(*given, **named)
            else:
                result = call(*inside(args))
            if backend is None:
                return result
            back: R = kept_conversion(backend, device_like(array, backend))(result)
            return back

        return wrapper

    return decorate


def _first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Find the first array among arguments, and its backend; (None, None) if there is none."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        found = first_array(value)
        if found[1] is not None:
            return found
    return None, None
