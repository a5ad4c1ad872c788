"""Names of types, for messages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from arrayferry._plugin.types import resolve_types


def any_exists(paths: Sequence[Any]) -> bool:
    """Return whether one of several types, or dotted paths of types, exists. Their modules are imported."""
    for path in paths:
        with suppress(Exception):  # there is no such module, or it is a class itself
            importlib.import_module(str(path).rpartition(".")[0])
    return bool(resolve_types(paths))


def describe_value(value: Any) -> str:
    """Describe an object by its type, as it is imported: "an aslib.Array", "None"."""
    if value is None:
        return "None"
    cls, home = type(value), type(value).__module__
    top = home.partition(".")[0]
    if getattr(sys.modules.get(top), cls.__qualname__, None) is cls:
        home = top
    name = f"{home}.{cls.__qualname__}".removeprefix("builtins.")
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
