"""Namespaces of the Array API that a user names, of libraries for which no plugin is registered."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from types import ModuleType

from arrayferry._plugin.origin import failed_import

from .generic import is_namespace

__all__ = ["LIBRARIES", "find_namespace"]

LIBRARIES = (
    "array_api_compat", "array_api_strict", "blosc2", "cubed", "marray", "ndonnx", "ragged", "sparse",
)  # fmt: skip
"""Packages with namespaces that are imported by name."""
GROUP = "array_api"
"""The entry-point group in which, by the Array API standard, packages declare their namespaces."""


def find_namespace(name: str) -> ModuleType | None:
    """Find a namespace that is imported already, or belongs to a library of the Array API; None if there is none.

    Nothing else is imported: a mistyped name may be that of any file.

    Raises:
        BackendUnavailableError: it is one, but importing it fails.
    """
    module = _loaded(name)
    if module is None and (path := _path_of(name)):
        problem = failed_import(name, path, path.partition(".")[0])
        if problem is not None and not _is_missing(path, problem.__cause__):
            raise problem
        module = _loaded(path)
    return module


def _loaded(name: str) -> ModuleType | None:
    module = sys.modules.get(name)
    return module if isinstance(module, ModuleType) and is_namespace(module) else None


def _path_of(name: str) -> str:
    """Return the module to import for the name of a namespace, "" if that is not known as one."""
    if name.partition(".")[0] in LIBRARIES:
        return name
    return next((p.module for p in entry_points(group=GROUP) if name in (p.name, p.module)), "")


def _is_missing(path: str, error: BaseException | None) -> bool:
    """Tell whether an import failed since there is no such module."""
    return isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")
