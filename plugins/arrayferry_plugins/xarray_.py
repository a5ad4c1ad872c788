"""xarray."""

from __future__ import annotations

from arrayferry import Container, hookimpl

__all__ = ["arrayferry_containers"]


@hookimpl
def arrayferry_containers() -> list[Container]:
    """Return the containers of this module."""
    return []
