"""The four hooks that a plugin may implement."""

from __future__ import annotations

from typing import Any

import pluggy

from .backend import Backend
from .container import Container
from .converter import Converter
from .origin import Source

HOOKS: dict[str, type[Any]] = {
    "arrayferry_backends": Backend,
    "arrayferry_converters": Converter,
    "arrayferry_containers": Container,
    "arrayferry_sources": Source,
}
"""The hooks, and the type of the parts that each returns in a list. They take no arguments."""

hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker("arrayferry")
