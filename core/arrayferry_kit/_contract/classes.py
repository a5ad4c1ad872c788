"""Names of types, for messages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from arrayferry._plugin.types import resolve_type


def missing_types(paths: Sequence[Any]) -> list[Any]:
    """Return the dotted paths that name no type of a package that is installed. Their modules are imported."""
    for path in paths:
        with suppress(Exception):  # there is no such module, or it is a class itself
            importlib.import_module(str(path).rpartition(".")[0])
    lost = [path for path in paths if resolve_type(path) is None]
    return [path for path in lost if str(path).partition(".")[0] in sys.modules]
