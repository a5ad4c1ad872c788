"""Calls functions in child processes, so that a library that hangs, crashes or prints does not affect the command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from arrayferry import ArrayFerryError
from arrayferry._utilities.text import printable
from arrayferry.extending import PLUGINS_VARIABLE, describe_error

from ._result import CommandError, UsageError

Announce = Callable[..., None]
"""The type of the argument `step` of a task.

The task calls `step` before each of its steps, with a description of the step and the remedy if the step fails.
"""
MAX_TEXT = 2_000
"""The maximum number of characters of a text in the result or error of a task."""
SMALL = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Environment variables that keep a child process from reserving the memory of the GPU."""


def ask(
    task: Callable[..., Any],
    timeout: float,
    plugins: Iterable[str] | None,
    output: int | None = None,
    **arguments: Any,
) -> Any:
    """Call a function in a child process, and return its result.

    Args:
        task: the function. Its first argument is an `Announce`. The task calls this argument before anything that may
            end the process, such as an import.
        timeout: the time limit in seconds.
        plugins: the names of the plugins to load. None loads the plugins that the user has chosen.
        output: the file descriptor of this process, 1 or 2, to which the child's standard output goes. With None,
            the output is not shown, but errors quote its last line.
        arguments: further arguments of the task. They and the result are sent as JSON in a file.

    Raises:
        CommandError: the child process crashed, took too long, or raised an error.
    """
    python_path = os.pathsep.join(filter(os.path.isabs, sys.path))
    plugin_env = {} if plugins is None else {PLUGINS_VARIABLE: ",".join(plugins)}
    code = f"from {__name__} import answer; from {task.__module__} import {task.__name__} as task; answer(task)"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        message_path, output_path = Path(folder, "message"), Path(folder, "output")
        request = {"step": "starting a process", "remedy": "", "arguments": arguments}
        message_path.write_text(json.dumps(request), "utf-8")
        with output_path.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(message_path)],
                stdin=subprocess.DEVNULL,
                stdout=file if output is None else output,
                stderr=file if output is None else None,
                env={**SMALL, **os.environ, "PYTHONPATH": python_path, **plugin_env},
                cwd=folder,
                start_new_session=True,
            )
            end_text = _end(process, timeout, shown=output is not None)
        lines = output_path.read_text("utf-8", "replace").strip().splitlines()[-1:]
        end_text += "".join(f" ({line.strip()[:200]})" for line in lines)
        reply = _readable({"end": end_text, **json.loads(message_path.read_text("utf-8"))})
    if "result" in reply:
        return reply["result"]
    reason = reply.get("reason") or f"{reply['step']} {reply['end']}"
    raise (UsageError if reply.get("usage") else CommandError)(reason, remedy=reply["remedy"])


def _end(process: subprocess.Popen[bytes], timeout: float, shown: bool) -> str:
    """Wait for a process, and end all processes that it has started. Return words for how it ended."""
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        if shown:
            os.kill(process.pid, signal.SIGABRT)  # lets pytest print where the test hangs
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        return f"took longer than {timeout:g} seconds"
    finally:
        with suppress(AttributeError, ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # AttributeError: Windows has no killpg
        process.kill()
        process.wait()
    if status >= 0:
        return f"failed: it ended the process with exit status {status}"
    name = next((each.name for each in signal.Signals if each == -status), f"signal {-status}")
    return f"failed: it crashed with {name}"


def answer(task: Callable[..., Any]) -> None:
    """In a child process, call a function with the arguments that `ask` has sent, and end the process.

    The file with the arguments is replaced by the description of each step, and then by the result or the error. The
    file is open only while it is written, so that a library that prints cannot write to it.
    """
    message_path, process_id = Path(sys.argv[1]), os.getpid()
    last_message = json.loads(message_path.read_text("utf-8"))
    arguments = last_message.pop("arguments")
    warnings.simplefilter("ignore")

    def step(what: str, remedy: str = "", **end: Any) -> None:
        if os.getpid() != process_id:  # a plugin has forked, and its child must not answer too
            os._exit(0)
        last_message.update(step=what, remedy=remedy, **end)
        new_path = message_path.with_suffix(".new")
        new_path.write_text(json.dumps(last_message), "utf-8")
        new_path.replace(message_path)

    try:
        step("", result=task(step, **arguments))
    except ArrayFerryError as error:
        is_usage = isinstance(error, (LookupError, UsageError))
        step("", error.remedy, reason=error.reason, usage=is_usage)
    except BaseException as error:
        step(last_message["step"], last_message["remedy"], end=f"failed: {describe_error(error)}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for the threads and atexit functions of libraries, which may hang


def _readable(answer: Any) -> Any:
    """Return an answer with shorter paths and texts, and without characters that control a terminal."""
    if isinstance(answer, list):
        return [_readable(part) for part in answer]
    if isinstance(answer, dict):
        return {name: _readable(part) for name, part in answer.items()}
    if not isinstance(answer, str):
        return answer
    text = without_paths(answer[: MAX_TEXT * 2])
    text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
    return "\n".join(map(printable, text.split("\n")))


_PATH = re.compile(r"(?<![\w/.\\~<>])(?:[A-Za-z]:)?(?:[/\\](?=[^\s/\\]))(?:[^\s/\\'\"()]+[/\\])+")


def without_paths(text: str) -> str:
    """Shorten each absolute path to "..." and its last part, so that the text shows no names of folders.

    Examples:
        >>> without_paths("cannot open /home/someone/lib/libcuda.so: no such file")
        'cannot open .../libcuda.so: no such file'
        >>> without_paths("see https://example.org/a/b, and 1/2")
        'see https://example.org/a/b, and 1/2'
    """
    for folder in (sys.prefix, os.path.expanduser("~")):
        if len(folder) > 1:
            text = re.sub(rf"(?<![\w:/.~-]){re.escape(folder)}(?![\w.~-])", "...", text)
    return _PATH.sub(".../", re.sub(r"\bfile://(?=/)", "", text))
