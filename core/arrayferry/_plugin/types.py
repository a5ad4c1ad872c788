"""Types by dotted paths, so that a plugin can name those of a library that is not imported yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["resolve_type", "resolve_types"]


def resolve_type(entry: Any) -> type | None:
    """Find a type in the modules that have been imported already.

    Args:
        entry: a dotted path such as `"torch.Tensor"`, or the type itself.

    Returns:
        The type, None if its package has not been imported or has no such type (yet). Modules that a package
        imports on demand are not imported.
    """
    if isinstance(entry, type):
        return entry
    walked, *rest = str(entry).split(".")
    place: Any = sys.modules.get(walked)
    for part in rest[:-1]:
        walked = f"{walked}.{part}"
        place = sys.modules.get(walked) or getattr(place, "__dict__", {}).get(part)
    try:
        place = getattr(place, rest[-1], None) if rest else place
    except Exception:  # a lazy module whose import fails
        return None
    return place if isinstance(place, type) else None


def resolve_types(entries: Iterable[Any]) -> list[type]:
    """Find several types, leaving out those that are not found."""
    return [cls for entry in entries if (cls := resolve_type(entry)) is not None]
