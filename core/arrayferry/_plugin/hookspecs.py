"""The four hooks that a plugin may implement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .backend import Backend
    from .container import Container
    from .converter import Converter
    from .origin import Source

__all__ = [
    "arrayferry_backends",
    "arrayferry_containers",
    "arrayferry_converters",
    "arrayferry_sources",
    "hookimpl",
]

PROJECT = "arrayferry"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


@hookspec
def arrayferry_backends() -> Iterable[Backend]:  # type: ignore[empty-body]
    """Give the array libraries that the plugin supports."""


@hookspec
def arrayferry_converters() -> Iterable[Converter]:  # type: ignore[empty-body]
    """Give direct converters that are better than the general path through NumPy."""


@hookspec
def arrayferry_containers() -> Iterable[Container]:  # type: ignore[empty-body]
    """Give structures to search for arrays."""


@hookspec
def arrayferry_sources() -> Iterable[Source]:  # type: ignore[empty-body]
    """Give the sources: what arrays are read from that is not an array itself."""
