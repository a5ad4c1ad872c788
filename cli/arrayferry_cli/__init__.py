"""The command `arrayferry`: it shows what is installed and how arrays are converted, and tests and writes plugins.

>>> from arrayferry_cli import main
>>> main(["--version"])
Traceback (most recent call last):
SystemExit: 0
"""

from __future__ import annotations

from ._app import main

__all__ = ["main"]
