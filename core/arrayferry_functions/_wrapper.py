"""The functions that `agnostic` returns, which are pickled by value.

This module contains nothing else that they refer to. Otherwise the pickle of a function and that of its copy would differ
in references to the module's name, and so would Dask's tokens, which are made from pickles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrapper_of(call: Callable[..., Any], is_receiver: Any) -> Callable[..., Any]:
    """Return a function that passes its arguments, keyword arguments and the object of a method to `call`.

    Args:
        call: called with a tuple, a dict, and a tuple of the object, which is empty if there is none.
        is_receiver: returns whether the first argument is the object of a method. None if it never is.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_receiver is not None and args and is_receiver(args[0]):
            return call(args[1:], kwargs, args[:1])
        return call(args, kwargs, ())

    return wrapper
