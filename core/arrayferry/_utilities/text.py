"""Functions that write short texts for objects, without computing lazy values, and without raising errors."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arrayferry._types import AnyTree

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def short_repr(value: AnyTree, most: int = 40) -> str:
    """Return a short text for a value: text and numbers as Python writes them, or the type of any other value."""
    if type(value) not in _PLAIN:
        return f"<{type(value).__name__}>"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"<int of {value.bit_length()} bits>"
    text = repr(value[:most] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def type_name(cls: type) -> str:
    """Return the dotted path of a class, without the module of a built-in type."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def describe_value(value: AnyTree) -> str:
    """Describe an object by the path from which users import its type, as in "an aslib.Array". None is "None"."""
    if value is None:
        return "None"
    cls, home = type(value), type(value).__module__
    top = home.partition(".")[0]
    if getattr(sys.modules.get(top), cls.__qualname__, None) is cls:
        home = top
    name = f"{home}.{cls.__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


_CONTROL = r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"


def printable(text: str) -> str:
    """Return a text with escapes for characters that would break a line, control a terminal or cannot be encoded."""
    return re.sub(_CONTROL, lambda match: match[0].encode("unicode_escape").decode(), text)


def changed_arguments(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the values that differ from their defaults, written as the keyword arguments of a call."""
    return ", ".join(
        f"{name}={short_repr(value)}"
        for name, value in values.items()
        if type(value) is not type(defaults[name]) or value != defaults[name]
    )


def never_raises(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a `__repr__` that calls `write`, and returns a text even if `write` fails, as for an unfinished object."""

    @functools.wraps(write)
    def written(self: Any) -> str:
        try:
            return write(self)
        except Exception:
            return f"<{type(self).__name__}, incomplete>"

    return written


def numbered(names: Iterable[str]) -> list[str]:
    """Return unique names: a number is added to a name that occurred before."""
    unique: list[str] = []
    for name in names:
        number, new = 1, name
        while new in unique:
            number += 1
            new = f"{name}_{number}"
        unique.append(new)
    return unique
