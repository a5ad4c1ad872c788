"""The command itself: how it is started, its help, its output, and the package that it comes in."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import arrayferry as af

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "doctor": "[--json]",
    "routes": "[SOURCE] [TARGET]",
    "check": "PACKAGE",
    "check-env": "MODULE:CLASS",
    "new-plugin": "NAME",
}
"""The commands, and how the line of their usage ends."""


@pytest.mark.parametrize(
    "module", ["arrayferry", pytest.param("arrayferry_cli", marks=pytest.mark.long)]
)
def test_it_is_a_module_too(module):
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"arrayferry {af.__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run, command):
    _, out, _ = run("--help", status=0)
    assert [name for name in COMMANDS if f"  {name} " not in out] == []
    status, out, _ = run(command, "--help")
    shown = " ".join(out.partition("\n\n")[0].split())
    assert status == 0
    assert shown.startswith(f"usage: arrayferry {command} ")
    assert shown.endswith(f" {COMMANDS[command]}")
    assert "--timeout SECONDS" in out


WRONG_USAGE = [
    (),
    ("nothing",),
    ("check",),
    ("routes", "a", "b", "c"),
    ("doctor", "--time", "9"),
    ("doctor", "--timeout", "0"),
    ("doctor", "--timeout", "inf"),
    ("doctor", "--timeout", "nan"),
    ("doctor", "--timeout", "soon"),
    ("new-plugin", "mine", "--json"),
]


@pytest.mark.parametrize("arguments", WRONG_USAGE)
def test_wrong_usage(run, arguments):
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize("width", [pytest.param(200, marks=pytest.mark.long), 24])
def test_a_table_that_is_too_wide_becomes_a_list(run, only, monkeypatch, width):
    only("numpy", "dask")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((width, 50)))
    _, shown, _ = run("routes")
    assert "\x1b" not in shown
    words = shown.replace(":", "").split()
    assert [word for word in ("numpy", "dask", "computed") if word not in words] == []
    assert max(map(len, shown.splitlines())) <= width, shown
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []


def test_it_starts_where_there_are_fewer_signals(run_python):
    """Windows has no SIGHUP and no process groups."""
    out = run_python(
        "import os, signal, sys\ndel signal.SIGHUP, os.killpg\n"
        "sys.argv[1:] = ['routes', 'numpy', 'numpy']\nos.environ['ARRAYFERRY_PLUGINS'] = 'numpy'\n"
        "import arrayferry_cli\narrayferry_cli.main()"
    )
    assert out.endswith("The array itself is returned: there is nothing to do.\n")


def test_the_wheel_has_it(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(path).namelist()
    root = ROOT / "cli"
    expected = {str(p.relative_to(root)) for p in root.rglob("*") if p.suffix in (".py", ".txt")}
    assert expected <= set(names)
    assert len([name for name in names if name.startswith("arrayferry_cli/template/")]) == 7
    metadata = zipfile.ZipFile(path)
    points = next(name for name in names if name.endswith("entry_points.txt"))
    assert "arrayferry = arrayferry_cli:main" in metadata.read(points).decode()


STREAMS = [(">&-", 0), ("2>&-", 0), ("| head -n 0", 0), ("> /dev/full", 1)]


@pytest.mark.long
@pytest.mark.parametrize(("stream", "status"), STREAMS)
def test_streams_that_cannot_be_written_to(stream, status):
    command = f"{sys.executable} -m arrayferry routes numpy torch {stream}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, "Error" in done.stdout) == (status, False)
    assert "Traceback" not in done.stderr
    assert ("cannot be written: [Errno 28]" in done.stderr) is (status == 1)
    assert status == 1 or done.stderr == ""
