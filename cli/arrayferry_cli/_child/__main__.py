"""Does one task, and ends the process."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from arrayferry import ArrayFerryError
from arrayferry_cli._errors import CommandError, UsageError


def main(task: str, folder: Path) -> None:
    """Do a task.

    Args:
        task: the name of a module beside this one, and of a function there.
        folder: the folder of its arguments and of the file for messages. The file is open only while a message is
            written, so that no library writes to it.
    """
    process = os.getpid()

    def send(**message: Any) -> None:
        if os.getpid() != process:  # a plugin has forked, and both go on
            os._exit(0)
        with (folder / "messages").open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")

    def step(what: str, remedy: str = "") -> None:
        send(step=what, remedy=remedy)

    arguments = json.loads((folder / "arguments").read_text("utf-8"))
    try:
        module, _, function = task.partition(".")
        tasks = importlib.import_module(f"arrayferry_cli._child.{module}")
        send(answer=getattr(tasks, function)(step, **arguments))
    except (ArrayFerryError, CommandError) as error:
        usage = isinstance(error, (LookupError, UsageError))
        send(error=error.reason, remedy=error.remedy, usage=usage)
    except BaseException as error:
        traceback.print_exc()
        send(failure=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads and exit functions of libraries may hang
