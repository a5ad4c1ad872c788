"""The command, run in this process, or in one of its own with a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from distributions import plugin, write_distribution

import arrayferry as af
import arrayferry_cli


@pytest.fixture
def run(capfd):
    """Run the command in this process, and return its exit status, its output and its errors."""

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            arrayferry_cli.main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err, out + err
        return end.value.code, out, err

    return call


@pytest.fixture
def only(monkeypatch):
    """Choose the plugins that are loaded in other processes. Those of this one are loaded before."""
    af.backends()
    return lambda *names: monkeypatch.setenv("ARRAYFERRY_PLUGINS", ",".join(names))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a folder whose distributions count as installed."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def toy(installed, only):
    """Install the toy plugin with other lines, to be loaded beside that of NumPy alone."""

    def install(*changes):
        code = plugin("toy")
        for line, instead in changes:
            assert line in code
            code = code.replace(line, instead)
        write_distribution(installed, "toy", code)
        only("numpy", "toy")

    return install


@pytest.fixture
def on_terminal():
    """Run the command on a terminal of some width, and return what it shows."""
    pty = pytest.importorskip("pty")
    import fcntl
    import struct
    import termios

    def call(width, *arguments, **environment):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM")}
        process = subprocess.Popen(
            [sys.executable, "-m", "arrayferry", *arguments],
            stdout=theirs,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**kept, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        assert process.wait(60) == 0
        return shown.decode().replace("\r\n", "\n")

    return call
