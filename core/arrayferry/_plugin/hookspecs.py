"""The specifications of arrayferry's own four hooks for pluggy. A plugin may also implement hooks of layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from .backend import Backend
from .container import Container
from .converter import Converter
from .origin import Source

PROJECT = "arrayferry"
"""The name by which pluggy recognises the hooks of arrayferry."""

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


@hookspec
def arrayferry_backends() -> Iterable[Backend]:
    """Return the array libraries that the plugin adds."""
    return ()


@hookspec
def arrayferry_converters() -> Iterable[Converter]:
    """Return direct converters between two libraries, which are cheaper than the general path through NumPy."""
    return ()


@hookspec
def arrayferry_containers() -> Iterable[Container]:
    """Return the containers. Each describes a type of structure that conversions search for arrays."""
    return ()


@hookspec
def arrayferry_sources() -> Iterable[Source]:
    """Return the sources. Each describes objects that arrays are read from, such as columns of tables."""
    return ()


HOOKS: dict[str, type[Any]] = {
    "arrayferry_backends": Backend,
    "arrayferry_converters": Converter,
    "arrayferry_containers": Container,
    "arrayferry_sources": Source,
}
"""For each hook, the class of the parts that it returns."""
