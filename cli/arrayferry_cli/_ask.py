"""Tasks in separate processes. A library that hangs, crashes or prints there does no harm here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from arrayferry.adapting import printable

from ._errors import CommandError, UsageError

MAX_TEXT = 2_000
"""The maximum number of characters of one text in an answer."""


def ask(task: str, arguments: dict[str, Any], environment: dict[str, str], timeout: float) -> Any:
    """Do a task in a separate process, and return its result.

    Args:
        task: the module and the name of a function of `_child`.
        arguments: those of the function.
        environment: the variables to set.
        timeout: seconds that it may take.

    Raises:
        CommandError: it crashed, took too long, or raised an error.
    """
    (answer,) = ask_each(task, [arguments], environment, timeout)
    if isinstance(answer, CommandError):
        raise answer
    return answer


def ask_each(
    task: str, arguments: Sequence[dict[str, Any]], environment: dict[str, str], timeout: float
) -> list[Any]:
    """Do a task with each of several arguments, as many at the same time as there are cores.

    Returns:
        What it returned each time, in order. If there is no answer, a `CommandError` is in its place.
    """
    waiting = dict(enumerate(arguments))
    running: dict[int, _Asked] = {}
    answers: dict[int, Any] = {}
    try:
        while waiting or running:
            for number in list(waiting)[: (os.cpu_count() or 1) - len(running)]:
                running[number] = _Asked(task, waiting.pop(number), environment, timeout)
            time.sleep(0.01)
            for number in [number for number, asked in running.items() if asked.has_ended()]:
                answers[number] = running[number].answer()
                running[number].close()
                del running[number]
    finally:
        for asked in running.values():
            asked.close()
    return [answers[number] for number in sorted(answers)]


class _Asked:
    """A process that does a task. It writes its messages and its output to files in a folder of its own."""

    def __init__(
        self, task: str, arguments: dict[str, Any], environment: dict[str, str], timeout: float
    ) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self._messages, self._output, here = folder / "messages", folder / "output", folder / "here"
        self._messages.touch()
        here.mkdir()
        (folder / "arguments").write_text(json.dumps(arguments), "utf-8")
        with self._output.open("wb") as output:
            command = ["-m", "arrayferry_cli._child", task, str(folder)]
            self._process = start(command, here, environment, output)

    def has_ended(self) -> bool:
        """Return whether the process has ended or its time is over."""
        return self._process.poll() is not None or time.monotonic() > self._end

    def close(self) -> None:
        """End the process and what it has started, and remove its folder."""
        end_group(self._process)
        self._folder.cleanup()

    def answer(self) -> Any:
        """Return what the task returned, or a `CommandError`."""
        lines = self._messages.read_text("utf-8").splitlines(keepends=True)
        last: dict[str, str] = {}
        for message in (_readable(json.loads(line)) for line in lines if line.endswith("\n")):
            if "answer" in message:
                return message["answer"]
            if "error" in message:
                kind = UsageError if message["usage"] else CommandError
                return kind(message["error"], message["remedy"])
            last |= message
        failure = last.get("failure") or self._how_it_ended()
        step, remedy = last.get("step", "starting a process"), last.get("remedy", "")
        return CommandError(f"{step} failed: {failure}", remedy)

    def _how_it_ended(self) -> str:
        """Say how the process ended, with the last line that it wrote."""
        status = self._process.poll()
        if status is None:
            return f"there was no answer within {self._timeout:g} seconds"
        lines = self._output.read_text("utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        text = describe_end(status)
        return str(_readable(f"{text} ({last[:200]})" if last else text))


def start(
    arguments: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    output: IO[bytes] | int | None,
) -> subprocess.Popen[bytes]:
    """Start Python in a session of its own, with the same modules to import.

    Args:
        arguments: those of Python.
        folder: the current folder of the process.
        environment: variables to set.
        output: where standard output and standard error go, None to leave them.
    """
    # the process must not take GPU memory from the programs that run on the GPU
    small = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    try:
        path = [os.path.abspath(place) for place in sys.path]
    except OSError:  # the current folder was removed
        path = [place for place in sys.path if os.path.isabs(place)]
    modules = {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**small, **os.environ, **modules, **environment},
        cwd=folder,
        start_new_session=True,
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that `start` has started, and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def describe_end(status: int) -> str:
    """Say how a process ended by itself."""
    if status >= 0:
        return f"it ended the process with exit status {status}"
    names = {each.value: each.name for each in signal.Signals}
    return f"it crashed with {names.get(-status, f'signal {-status}')}"


def _readable(answer: Any) -> Any:
    """Shorten paths and long texts, and replace characters that would control a terminal."""
    if isinstance(answer, str):
        text = without_paths(answer[: MAX_TEXT * 2])
        text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
        return "\n".join(map(printable, text.split("\n")))
    if isinstance(answer, list):
        return [_readable(part) for part in answer]
    if isinstance(answer, dict):
        return {name: _readable(part) for name, part in answer.items()}
    return answer


_PATH = re.compile(r"(?<![\w/.\\~<>])(?:[A-Za-z]:)?(?:[/\\](?=[^\s/\\]))(?:[^\s/\\'\"()]+[/\\])+")


def without_paths(text: str) -> str:
    """Shorten absolute paths to their last part, so that a text can be shown to others.

    Examples:
        >>> without_paths("cannot open /home/someone/lib/libcuda.so: no such file")
        'cannot open .../libcuda.so: no such file'
        >>> without_paths("see https://example.org/a/b, and 1/2")
        'see https://example.org/a/b, and 1/2'
    """
    for place in (sys.prefix, os.path.expanduser("~")):
        if len(place) > 1:
            text = re.sub(rf"(?<![\w:/.~-]){re.escape(place)}(?![\w.~-])", "...", text)
    text = re.sub(r"\bfile://(?=/)", "", text)
    return _PATH.sub(".../", text)
