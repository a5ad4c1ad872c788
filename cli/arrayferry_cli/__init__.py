"""The command `arrayferry`: what is installed, how arrays travel, and tests and templates for plugins.

It needs the extra `cli`: `pip install "arrayferry[cli]"`.

    >>> from arrayferry_cli import main
    >>> main(["--version"])
    Traceback (most recent call last):
    SystemExit: 0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command.

    Args:
        arguments: what follows the name of the command; None for those of the process.

    Raises:
        SystemExit: always, with the exit status.
    """
    try:
        from ._app import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("arrayferry"):
            raise
        print(
            f"The command arrayferry needs {missing}, which is not installed. "
            'Run: pip install "arrayferry[cli]", or in the folder of its source pip install ".[cli]"',
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(run(arguments))
