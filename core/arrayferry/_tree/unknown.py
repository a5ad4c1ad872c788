"""Objects of no known library that could become an array by one of the array protocols.

They are never converted unless `unknown="convert"` asks for it, since it is not known what is lost. Where
such an object is the whole value, returning it unchanged would be a surprise, so that is an error.
"""

from __future__ import annotations

import datetime
import sys
from enum import Enum
from numbers import Number
from pathlib import PurePath
from types import ModuleType
from typing import Any

from arrayferry._errors import NotAnArrayError
from arrayferry._plugin.origin import Source

from .kind import Kind
from .state import class_attribute
from .values import (
    BUFFERS,
    BY_ARROW,
    BY_NUMPY,
    PASS_MAGNITUDE,
    has_units,
    offers,
    read_values,
    type_name,
)

__all__ = ["is_plain", "may_become_array", "refuse_object", "refuse_unknown"]


_PROTOCOLS = ("__dlpack__", *BY_NUMPY, "__cuda_array_interface__", *BY_ARROW)


_PLAIN = (str, bytes, bytearray, type, ModuleType, Enum)


_PYTHONS = (
    *_PLAIN, Number, datetime.date, datetime.time, datetime.timedelta, set, frozenset, BaseException, PurePath,
)  # fmt: skip
"""Types whose subclasses are not meant as arrays either."""


_HOMES = frozenset({*sys.stdlib_module_names, "numpy"})


def may_become_array(value: Any) -> bool:
    """Return whether an object that is not an array, container or source could become an array."""
    cls = type(value)
    if issubclass(cls, BUFFERS):
        return True
    numbers = getattr(sys.modules.get("numpy"), "generic", ())
    return (
        not issubclass(cls, _PLAIN) and not issubclass(cls, numbers) and offers(value, _PROTOCOLS)
    )


def is_plain(value: Any) -> bool:
    """Return whether an object is data of Python or NumPy, such as text or a date, which is never meant as an array."""
    cls = type(value)
    return issubclass(cls, _PYTHONS) or cls.__module__.partition(".")[0] in _HOMES


def refuse_unknown(value: Any, path: str, *, known: bool = False) -> NotAnArrayError:
    """Return the error for such an object where it is not converted, with what to do instead.

    Args:
        value: the object.
        path: its place in the tree.
        known: whether there is a source for it.
    """
    name = type_name(value)
    if has_units(value):
        reason, remedy = (
            f"a value of type {name} has units, which would be lost",
            PASS_MAGNITUDE,
        )
    else:
        reason = f"a value of type {name} is not an array of a known library"
        package = type(value).__module__.partition(".")[0]
        own = package in {*_HOMES, "__main__"}
        listed = "that has this type among its array_types"
        plugin = "" if own else f", or install a plugin for {package} {listed}"
        first = "Convert it by itself" if known else f"Call {_own_way(value)} first{plugin}"
        remedy = f'{first}, or pass unknown="convert".'
    return NotAnArrayError(reason, remedy=remedy, path=path)


def refuse_object(value: Any) -> NotAnArrayError:
    """Return the error for a whole value that is not an array, and cannot become one."""
    return NotAnArrayError(
        f"a value of type {type_name(value)} is neither an array of a known library nor a structure",
        remedy="Pass an array or a structure of arrays, or install a plugin that has this type among its array_types.",
    )


def _own_way(value: Any) -> str:
    """Return the call that makes an array from an object, as a user would write it."""
    for method in ("to_numpy", "numpy"):
        if callable(class_attribute(type(value), method)):
            return f"x.{method}()"
    if issubclass(type(value), BUFFERS) or offers(value, BY_NUMPY):
        return "numpy.asarray(x)"
    if offers(value, "__dlpack__"):
        return "numpy.from_dlpack(x)"
    if offers(value, "__arrow_c_array__"):
        return "pyarrow.array(x)"
    return "pyarrow.table(x)" if offers(value, BY_ARROW) else "cupy.asarray(x)"


class _Unknown(Source):
    """Reads such objects by their protocols. It is not known who else holds their memory."""

    name = "unknown"
    package = "builtins"
    array_types = ()
    memory = "unknown"

    def to_numpy(self, x: Any) -> Any:
        return read_values(x)


UNKNOWN = Kind("source", source=_Unknown())
