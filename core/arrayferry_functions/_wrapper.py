"""The functions that `agnostic` returns. Pickles of them contain their code.

This code uses no global name of this module. Otherwise a function and its unpickled copy would have different pickles,
because they would refer to the module differently. Dask computes tokens from pickles, so the tokens would differ too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrapper_of(call: Callable[..., Any], is_receiver: Any) -> Callable[..., Any]:
    """Return a function that passes its arguments to `call`, and `self` separately if it is a method.

    Args:
        call: accepts a tuple of arguments, a dict of keyword arguments, and `(self,)` for a method or `()` otherwise.
        is_receiver: returns whether the first argument is `self`. None if the function is not a method.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_receiver is not None and args and is_receiver(args[0]):
            return call(args[1:], kwargs, args[:1])
        return call(args, kwargs, ())

    return wrapper
