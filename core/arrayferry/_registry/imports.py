"""Modules that are imported because a user named them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

__all__ = ["import_module"]


def import_module(name: str) -> ModuleType | None:
    """Import a module by name; None if there is none, or if it belongs to the standard library."""
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
