"""Checks of a function that `agnostic` decorates: whether it is a method, a coroutine function or a generator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from arrayferry import OptionError


def receiver_test(function: Callable[..., Any]) -> Callable[[Any], bool] | None:
    """Return a test of whether the first argument is the object of a method, None if the function is not a method.

    Such an object may be a structure of arrays, such as a dataclass. It is not converted, since a method may change it.
    """
    if hasattr(inspect.unwrap(function), "__self__"):  # it has its object already
        return None
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    module = getattr(function, "__module__", None)
    try:
        named = [*inspect.signature(function).parameters][:1] == ["self"]
    except (TypeError, ValueError):
        named = False
    if not named and (not owner or owner.endswith("<locals>")):
        return None

    def is_receiver(value: Any) -> bool:
        for base in type(value).__mro__:
            if base.__qualname__ == owner and base.__module__ == module:
                return not isinstance(base.__dict__.get(name), staticmethod)
        return named

    return is_receiver


def refuse_later_results(function: Callable[..., Any], name: str) -> None:
    """Refuse a function that returns a coroutine or a generator.

    Raises:
        OptionError: the function returns one.
    """
    ways = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
    if any(is_one(function) for is_one in ways):
        raise OptionError(
            f"{name} returns a coroutine or a generator, whose results come too late to be converted",
            remedy="Decorate a function that returns arrays, and call it from there.",
        )
