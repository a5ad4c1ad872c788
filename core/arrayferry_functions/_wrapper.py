"""The functions that `agnostic` returns, which are pickled by value.

Nothing else in their pickles is of this module. Otherwise a pickle would refer to the name of the module where that of its
copy has it again, and Dask's tokens, which are made of pickles, would differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wrapper_of(call: Callable[..., Any], is_receiver: Any) -> Callable[..., Any]:
    """Return a function that passes its arguments, keyword arguments and the object of a method to `call`.

    Args:
        call: called with a tuple, a dict, and the object in a tuple, which is empty for other functions.
        is_receiver: returns whether the first argument is the object of a method. None if it never is.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_receiver is not None and args and is_receiver(args[0]):
            return call(args[1:], kwargs, args[:1])
        return call(args, kwargs, ())

    return wrapper
