"""Questions to processes of their own. A library that hangs, crashes or prints there does no harm here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, TypeVar

from arrayferry.adapting import printable

from ._errors import NoAnswerError
from ._messages import from_message
from ._reports import END, Failed

_BOOT = (
    "import json, sys; given = json.loads(sys.argv.pop()); sys.path[:] = given['path']; "
    "from arrayferry_cli._child import main; main(given['task'], given['arguments'])"
)
_SMALL = {
    # a look at a library must not take the memory of the GPU from the programs that run on it
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
_running: set[subprocess.Popen[bytes]] = set()

Given = TypeVar("Given")
Answer = TypeVar("Answer")


def ask(
    task: str, *, timeout: float, environment: dict[str, str] | None = None, **arguments: Any
) -> Iterator[Any]:
    """Do a task of `_child` in a process of its own.

    Args:
        task: its name.
        timeout: seconds to wait for each answer.
        environment: variables to set in that process.
        arguments: what the task is given.

    Yields:
        Its reports, as dataclasses of `_reports`.

    Raises:
        NoAnswerError: it crashed, hangs, or failed. The text says how.
    """
    given = json.dumps({"path": _absolute(sys.path), "task": task, "arguments": arguments})
    with (
        tempfile.TemporaryFile() as noise,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,
            env={**_SMALL, **os.environ, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
        _running.add(process)
        reaper = threading.Thread(target=_reap, args=(process,), daemon=True)
        reaper.start()
        try:
            yield from _answers(process, reaper, noise, timeout)
        finally:
            assert process.stdout is not None
            process.stdout.close()
            _kill(process)
            reaper.join()
            _running.discard(process)


def _answers(
    process: subprocess.Popen[bytes], reaper: threading.Thread, noise: IO[bytes], timeout: float
) -> Iterator[Any]:
    assert process.stdout is not None
    late = threading.Event()

    def give_up() -> None:
        late.set()
        _kill(process)

    while True:
        timer = threading.Timer(timeout, give_up)
        timer.daemon = True
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if late.is_set():
            raise NoAnswerError(f"there was no answer within {timeout:g} seconds")
        if not line.endswith(b"\n"):
            reaper.join(5)
            raise NoAnswerError(_end_of(process, noise))
        try:
            message = _readable(json.loads(line))
            if message == END:
                return
            report = from_message(message)
        except ValueError:
            raise NoAnswerError("it wrote to files that it had not opened") from None
        if isinstance(report, Failed):
            raise NoAnswerError(report.reason)
        yield report


def _absolute(path: list[str]) -> list[str]:
    """Return folders to import from, which mean the same in another folder."""
    try:
        return [os.path.abspath(place) for place in path]
    except OSError:  # this folder was removed
        return [place for place in path if os.path.isabs(place)]


MAX_TEXT = 2_000
"""Characters of one text in an answer."""


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


_reaping = threading.Lock()
"""Held where a process is reaped or killed: once it is reaped, its number may be that of another one."""


def _reap(process: subprocess.Popen[bytes]) -> None:
    """End what a process has started as soon as it ends itself, since that may hold its output open."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(
            ChildProcessError
        ):  # SIGCHLD is ignored, and the system has reaped it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _kill(process)
        with _reaping:
            process.wait()
    else:
        process.wait()
        _kill_group(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that was not reaped, and what it started."""
    with _reaping:
        if process.returncode is None:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass


def _end_of(process: subprocess.Popen[bytes], noise: IO[bytes]) -> str:
    """Say how a process ended by itself, with the last line that it wrote."""
    status = process.returncode
    if status is None:
        return "it closed its output without an answer"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        text = f"it crashed with {name}"
    else:
        text = f"it ended the process with exit status {status}"
    noise.seek(0)
    lines = [line.strip() for line in noise.read().decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return f"{text} ({without_paths(last[:200])})" if last else text


def in_parallel(function: Callable[[Given], Answer], values: Iterable[Given]) -> Iterator[Answer]:
    """Call a function with each value, as many at once as there are cores, and yield the results in order."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = [pool.submit(function, value) for value in values]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(_running):
                _kill(process)
            raise


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
