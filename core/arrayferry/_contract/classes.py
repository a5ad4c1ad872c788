"""Names of types, for messages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from arrayferry._plugin.types import resolve_type


def missing_types(paths: Sequence[Any]) -> list[Any]:
    """Return the dotted paths that name no type of a package that is installed. Their modules are imported."""
    for path in paths:
        with suppress(Exception):  # there is no such module, or it is a class itself
            importlib.import_module(str(path).rpartition(".")[0])
    lost = [path for path in paths if resolve_type(path) is None]
    return [path for path in lost if str(path).partition(".")[0] in sys.modules]


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
