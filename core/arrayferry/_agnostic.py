"""`agnostic`: run a function in one library, called with and answering in the caller's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ._conversion import Target, make_conversion
from ._options import Options
from ._registry import default_registry
from ._tree import first_array

__all__ = ["agnostic"]

P = ParamSpec("P")
R = TypeVar("R")


def agnostic(to: Target, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function written for one library serve callers of any.

    All arrays among the arguments are converted to the library that the function is written for, and
    all arrays in its answer to that of the first array among the arguments, on its device. A call
    without an array answers in the function's own library.

    Args:
        to: the library that the function is written for, as `convert` takes it.
        **options: those of `convert`, for the arguments.

    Raises:
        OptionError: an option has a value that it cannot have.

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
    chosen = Options(**options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            registry = default_registry()
            array, backend = first_array((args, kwargs), registry)
            inside = make_conversion(to, chosen, registry)
            args_inside, kwargs_inside = inside((args, kwargs))
            call: Any = function
            answer: R = call(*args_inside, **kwargs_inside)
            if backend is None:
                return answer
            device = None if backend.is_traced(array) else backend.device_of(array)
            back: R = make_conversion(backend, Options(device=device), registry)(answer)
            return back

        return wrapper

    return decorate
