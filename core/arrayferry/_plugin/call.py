"""Calls methods of plugins. If a method fails, the error names the plugin."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import Any, NoReturn

from arrayferry._errors import (
    ArrayFerryError,
    ContractError,
    ConversionError,
    PluginWarning,
    describe_error,
)
from arrayferry._types import AnyArray
from arrayferry._utilities.text import type_name

from .origin import Origin

FEWEST_AXES = 32
"""Arrays of all libraries can have this many axes. NumPy 2 allows 64 axes, and earlier versions of NumPy allow 32."""

method_named = cache(attrgetter)
"""Returns a function that reads a method: `method_named("devices.move")(backend)` is `backend.devices.move`."""


def call_backend(backend: Origin, method: str, *args: Any) -> Any:
    """Call a method of a backend ("copy"), or of one of its attributes ("devices.move").

    Raises:
        ContractError: the method raised an error other than those of arrayferry. The text names the backend,
            the method, and the array that the method was called with.
        ConversionError: the method raised an error for an array of more axes than some libraries allow.
        Exception: memory ran out, or the method raised an error of arrayferry. This error is raised unchanged.
    """
    try:
        return method_named(method)(backend)(*args)
    except Exception as error:
        raise_named(backend, method, error, *args)


def ask_backend(backend: Origin, method: str, x: AnyArray, *args: Any) -> bool:
    """Call a method of a backend that returns True or False. Errors are raised as by `call_backend`."""
    try:
        return bool(method_named(method)(backend)(x, *args))
    except Exception as error:
        raise_named(backend, method, error, x, *args)


def raise_named(backend: Origin, method: str, error: Exception, *args: Any) -> NoReturn:
    """Raise the error of a backend's method as an error that names the backend. `call_backend` lists the errors."""
    if isinstance(error, (ArrayFerryError, MemoryError)) or is_out_of_memory(error, backend):
        raise error
    num_axes = 0
    with suppress(Exception):  # there may be no first argument, or it may have no shape
        num_axes = len(args[0].shape)
    if num_axes > FEWEST_AXES:
        raise ConversionError(
            f"an array of {num_axes} axes cannot be converted ({describe_error(error)})",
            remedy="Reshape it to fewer axes first.",
        ) from error
    argument_text = f" for {describe_array(args[0])}" if args else ""
    raise ContractError(
        f"{method}() of the {backend._role.lower()} {backend.name!r} raised {describe_error(error)}{argument_text}",
        remedy="If the array is valid, report this to the author of the plugin.",
        method=method,
        part=backend,
    ) from error


def is_out_of_memory(error: Exception, *origins: Origin) -> bool:
    """Return whether, according to the plugin of one of these libraries, an error means that memory ran out."""
    for origin in origins:
        with suppress(Exception):  # an error of this check must not replace `error`
            if origin.devices.is_out_of_memory(error):
                return True
    return False


def warn_of_plugin(text: str) -> None:
    """Issue a `PluginWarning`: a plugin failed in a conversion, which continues without the plugin."""
    warnings.warn(text, PluginWarning, stacklevel=3)


def wrong_result(origin: Origin, method: str, result: str, duty: str) -> ContractError:
    """Return the error for a method with a wrong result. `result` describes the result, and `duty` what it must be."""
    return ContractError(
        f"{method}() of the {origin._role.lower()} {origin.name!r} returned {result}",
        duty=duty,
        method=method,
        part=origin,
    )


def overrides(part: object, default: Callable[..., Any]) -> bool:
    """Return whether `part` overrides the method `default`, as in `overrides(backend.devices, Devices.fence)`."""
    return getattr(type(part), default.__name__) is not default


def describe_array(x: AnyArray) -> str:
    """Describe an array by its type, dtype and shape, as far as they can be read."""
    text = f"a {type_name(type(x))}"
    try:
        dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
        return f"{text} of dtype {dtype} and shape {shape}" if dtype is not None else text
    except Exception:
        return text
