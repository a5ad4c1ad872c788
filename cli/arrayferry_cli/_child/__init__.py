"""What runs in a process of its own, because it imports libraries and plugins: they may hang, crash or print.

Each module is a task: its `answer` yields reports, which are sent to `_ask` as lines of JSON. An error of arrayferry
that it raises is sent as `Unanswerable`. Whatever else the process writes to its standard output or error goes to a
file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from typing import Any, NoReturn

from arrayferry import ArrayFerryError
from arrayferry_cli._messages import as_message
from arrayferry_cli._reports import END, Failed, Unanswerable

__all__ = ["main"]


def main(task: str, arguments: dict[str, Any]) -> NoReturn:
    """Do a task and end the process.

    Args:
        task: the name of a module beside this one.
        arguments: passed to its `answer`.
    """
    answers, process = os.dup(1), os.getpid()
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def send(message: Any) -> None:
        if os.getpid() != process:  # a plugin has forked, and both go on
            os._exit(0)
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(answers, data) :]

    try:
        try:
            for report in importlib.import_module(f"{__name__}.{task}").answer(**arguments):
                send(as_message(report))
        except ArrayFerryError as error:  # this is the answer
            send(as_message(Unanswerable(str(error), isinstance(error, LookupError))))
        send(END)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        send(as_message(Failed(f"{type(error).__name__}: {error}")))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads and exit functions of libraries may hang
