"""The command `arrayferry`: what is installed, how arrays travel, and tests and templates for plugins.

It needs the extra `cli`: `pip install "arrayferry[cli]"`.

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
    if arguments is None:
        _own_process()
    status = run(arguments)
    if arguments is None and status:
        _drop_output()
    sys.exit(status)


def _own_process() -> None:
    """End this process in order where it is asked to end, so that the processes that it has started end too."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def _drop_output() -> None:
    """Drop what cannot be written, or Python would try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
