"""The functions that `agnostic` returns, which are pickled by value.

These functions refer to no other name of this module. Otherwise the pickle of a function would differ from the pickle
of its copy in references to the module's name. Dask's tokens, which are made from pickles, would differ too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrapper_of(call: Callable[..., Any], is_receiver: Any) -> Callable[..., Any]:
    """Return a function that passes its arguments to `call`, and `self` separately if it is a method.

    Args:
        call: a function of a tuple of arguments, a dict of keyword arguments, and `(self,)` or, without `self`, `()`.
        is_receiver: returns whether the first argument is `self`. None if the function is not a method.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_receiver is not None and args and is_receiver(args[0]):
            return call(args[1:], kwargs, args[:1])
        return call(args, kwargs, ())

    return wrapper
