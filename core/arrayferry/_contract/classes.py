"""Which classes of a library look like array classes, and names of types, for messages and templates."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from arrayferry._plugin.types import resolve_types

_SIGNS = ("shape", "dtype", "__array__", "__dlpack__", "__array_interface__", "__array_namespace__")


def array_classes(module: ModuleType) -> list[str]:
    """Return the dotted paths of up to 4 public classes of a library that look like array classes."""
    paths = []
    top = module.__name__.partition(".")[0]
    for name, value in list(vars(module).items()):
        if name.startswith("_") or not isinstance(value, type) or value.__name__ != name:
            continue
        if value.__module__.partition(".")[0] != top:
            continue
        made = getattr(vars(value).get("__init__"), "__code__", None)  # it may set the attributes
        known = {*dir(value), *getattr(made, "co_names", ())}
        if "shape" in known and known.intersection(_SIGNS[1:]):
            paths.append(f"{module.__name__}.{name}")
    return sorted(paths, key=lambda path: not re.search("array|tensor$", path.lower()))[:4]


def any_exists(paths: Sequence[Any]) -> bool:
    """Return whether one of several types, or dotted paths of types, exists. Their modules are imported."""
    for path in paths:
        with suppress(Exception):  # there is no such module, or it is a class itself
            importlib.import_module(str(path).rpartition(".")[0])
    return bool(resolve_types(paths))


def describe_value(value: Any) -> str:
    """Describe an object by its type: "an aslib.Array", "None"."""
    if value is None:
        return "None"
    name = describe_type(value)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def describe_type(value: Any) -> str:
    """Return the shortest dotted path by which the type of a value can be imported."""
    cls = type(value)
    top = sys.modules.get(cls.__module__.partition(".")[0])
    if getattr(top, cls.__qualname__, None) is cls and top is not None:
        return f"{top.__name__}.{cls.__qualname__}".removeprefix("builtins.")
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
