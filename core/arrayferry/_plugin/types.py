"""Finds types by dotted paths, with which plugins can name types of libraries that are not imported yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import Backend


def resolve_type(entry: Any) -> type | None:
    """Find a type in the modules that have been imported already.

    Args:
        entry: a dotted path such as `"torch.Tensor"`, or the type itself.

    Returns:
        The type, or None if its package has not been imported or does not have the type yet. Modules that a package
        imports on demand are not imported.
    """
    if isinstance(entry, type):
        return entry
    path, *names = str(entry).split(".")
    member: Any = sys.modules.get(path)
    for name in names[:-1]:
        path = f"{path}.{name}"
        member = sys.modules.get(path) or getattr(member, "__dict__", {}).get(name)
    try:
        member = getattr(member, names[-1], None) if names else member
    except Exception:  # reading the attribute may import a module, which may fail
        return None
    return member if isinstance(member, type) else None


def resolve_types(entries: Iterable[Any]) -> list[type]:
    """Find several types. Types that are not found are left out."""
    return [cls for entry in entries if (cls := resolve_type(entry)) is not None]


def is_importing(modules: Iterable[str]) -> bool:
    """Return whether one of these modules is being imported now, by another thread or by a caller of this function."""
    specs = (getattr(sys.modules.get(name), "__spec__", None) for name in modules)
    return any(getattr(spec, "_initializing", False) for spec in specs)


def has_item(backend: Backend, cls: type) -> bool:
    """Return whether `item()` of a one-element array of the type `cls` returns a Python number.

    This is so if `item_types` of the backend lists the type.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> from arrayferry.extending import has_item
        >>> has_item(af.registry.backend("numpy"), np.ndarray)
        True
    """
    return cls in resolve_types(backend.item_types)
