"""zarr."""

from __future__ import annotations

from arrayferry import Source, hookimpl

__all__ = ["arrayferry_sources"]


@hookimpl
def arrayferry_sources() -> list[Source]:
    """Return the sources of this module."""
    return []
