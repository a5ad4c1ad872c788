"""Dotted paths: looked up among what has been imported already, or imported because a user named it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

__all__ = ["import_module", "resolve_types"]


def resolve_types(types: tuple[Any, ...]) -> list[type]:
    """The classes of dotted paths, without those whose package nobody has imported."""
    found: list[type] = []
    for entry in types:
        if isinstance(entry, type):
            found.append(entry)
            continue
        top, *rest = str(entry).split(".")
        walked = top
        place: Any = sys.modules.get(top)
        for part in rest:
            walked = f"{walked}.{part}"
            place = getattr(place, part, None) or sys.modules.get(walked)
        if isinstance(place, type):
            found.append(place)
    return found


def import_module(name: str) -> ModuleType | None:
    """Import the module of that name, if there is one that is not of the standard library."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    try:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            return None
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None
