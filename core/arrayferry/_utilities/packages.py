"""Finds packages without importing them."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Return whether the top package of a dotted name can be found, without importing it."""
    top_package = package.partition(".")[0]
    if top_package in sys.modules:
        return sys.modules[top_package] is not None
    try:
        return find_spec(top_package) is not None
    except (ImportError, ValueError):
        return False
