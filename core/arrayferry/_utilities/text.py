"""Functions that return short texts about objects. They compute no lazy values, and raise no errors."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arrayferry._types import AnyTree

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def short_repr(value: AnyTree, most: int = 40) -> str:
    """Return a text of about `most` characters for a value: text and numbers as Python writes them, else the type."""
    if type(value) not in _PLAIN:
        return f"<{type(value).__name__}>"
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"<int of {value.bit_length()} bits>"
    text = repr(value[:most] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def type_name(cls: type) -> str:
    """Return the full name of a class with its module, as in "numpy.ndarray". A built-in class has no module: "int"."""
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def describe_value(value: AnyTree) -> str:
    """Describe an object by the public name of its type, as in "an aslib.Array". For None, return "None"."""
    if value is None:
        return "None"
    cls, module_name = type(value), type(value).__module__
    top_package = module_name.partition(".")[0]
    if getattr(sys.modules.get(top_package), cls.__qualname__, None) is cls:
        module_name = top_package
    name = f"{module_name}.{cls.__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


_CONTROL = r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]"


def printable(text: str) -> str:
    """Return a text in which escapes replace line breaks, control characters, and characters that cannot be encoded."""
    return re.sub(_CONTROL, lambda match: match[0].encode("unicode_escape").decode(), text)


def changed_arguments(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the values that differ from their defaults, written as the keyword arguments of a call."""
    return ", ".join(
        f"{name}={short_repr(value)}"
        for name, value in values.items()
        if type(value) is not type(defaults[name]) or value != defaults[name]
    )


def never_raises(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a `__repr__` that calls `write`. It returns another text if `write` fails, as for an unfinished object."""

    @functools.wraps(write)
    def safe_repr(self: Any) -> str:
        try:
            return write(self)
        except Exception:
            return f"<{type(self).__name__}, incomplete>"

    return safe_repr


def numbered(names: Iterable[str]) -> list[str]:
    """Return unique names: a number is added to a name that occurred before, as in "a", "a_2"."""
    unique_names: list[str] = []
    for name in names:
        number, new_name = 1, name
        while new_name in unique_names:
            number += 1
            new_name = f"{name}_{number}"
        unique_names.append(new_name)
    return unique_names
