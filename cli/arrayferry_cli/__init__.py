"""The command `arrayferry`: what is installed, how arrays travel, and tests and templates for plugins.

>>> from arrayferry_cli import main
>>> main(["--version"])
Traceback (most recent call last):
SystemExit: 0
"""

from __future__ import annotations

from ._app import main

__all__ = ["main"]
