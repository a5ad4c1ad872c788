"""The command `arrayferry`: what is installed, how arrays travel, and tests and templates for plugins.

>>> from arrayferry_cli import main
>>> main(["--version"])
Traceback (most recent call last):
SystemExit: 0
"""

from __future__ import annotations

import os
import signal
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
    from ._app import run

    if arguments is None:
        _end_in_order()
    status = run(arguments)
    if arguments is None and status:
        _drop_output()
    sys.exit(status)


def _end_in_order() -> None:
    """Raise an exception when this process is asked to end, so that the processes that it has started end too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _drop_output() -> None:
    """Drop output that cannot be written. Otherwise Python would try to write it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
