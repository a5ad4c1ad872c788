"""Functions that `agnostic` decorates: methods, and functions whose results come later."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

Function = Callable[..., Any]
DeferredCall = Callable[..., tuple[Any, Function, Function]]
"""Calls a function, and returns its result, the conversion to its library, and the one of its results."""


class _Receiver:
    """The object that a method belongs to. No conversion looks inside it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def take_receiver(function: Function) -> Callable[[Function], Function] | None:
    """Return a decorator that sets aside the object that a method belongs to, None for other functions.

    A dataclass, say, is a structure of arrays too. But a method changes the object itself, not a converted copy.
    """
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    module = getattr(function, "__module__", None)
    named = _first_parameter(function) == "self"
    if not named and (not owner or owner.endswith("<locals>")):
        return None

    def is_receiver(value: Any) -> bool:
        for base in type(value).__mro__:
            if base.__qualname__ == owner and base.__module__ == module:
                return not isinstance(base.__dict__.get(name), staticmethod)
        return named

    def decorate(wrapper: Function) -> Function:
        def outer(*args: Any, **kwargs: Any) -> Any:
            if args and is_receiver(args[0]):
                args = (_Receiver(args[0]), *args[1:])
            return wrapper(*args, **kwargs)

        return outer

    return decorate


def _first_parameter(function: Function) -> str:
    try:
        return next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        return ""


def with_receiver(function: Function) -> Function:
    """Return a function that gets back the object that `take_receiver` set aside."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is _Receiver:
            args = (args[0].value, *args[1:])
        return function(*args, **kwargs)

    return inner


def _coroutine(start: DeferredCall) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        inner, _, outward = start(*args, **kwargs)
        return outward(await inner)

    return wrapper


def _generator(start: DeferredCall) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inner, inward, outward = start(*args, **kwargs)
        try:
            value = next(inner)
            while True:
                try:
                    sent = yield outward(value)
                except BaseException as error:
                    value = inner.throw(error)
                else:
                    value = inner.send(inward(sent))
        except StopIteration as stop:
            return outward(stop.value)

    return wrapper


def _async_generator(start: DeferredCall) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        inner, inward, outward = start(*args, **kwargs)
        try:
            value = await anext(inner)
            while True:
                try:
                    sent = yield outward(value)
                except BaseException as error:
                    value = await inner.athrow(error)
                else:
                    value = await inner.asend(inward(sent))
        except StopAsyncIteration:
            return

    return wrapper


DEFERRED: dict[type, Callable[[DeferredCall], Function]] = {
    CoroutineType: _coroutine,
    GeneratorType: _generator,
    AsyncGeneratorType: _async_generator,
}
"""Makers of functions of the same kind, by the type of the objects that these return."""


def deferred_by_kind(function: Function) -> tuple[str, type] | None:
    """Return the kind of a function whose results come later, and the type that it returns; None for others."""
    if inspect.iscoroutinefunction(function):
        return "a coroutine function", CoroutineType
    if inspect.isgeneratorfunction(function):
        return "a generator function", GeneratorType
    if inspect.isasyncgenfunction(function):
        return "an asynchronous generator function", AsyncGeneratorType
    return None
