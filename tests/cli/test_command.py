"""The command itself: how it is started, its help, its screens, and the package that it comes in."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import arrayferry as af
import arrayferry_cli

ROOT = Path(__file__).parents[2]
COMMANDS = ("doctor", "routes", "check", "new-plugin")


@pytest.mark.parametrize("module", ["arrayferry", "arrayferry_cli"])
def test_it_is_a_module_too(module):
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"arrayferry {af.__version__}\n", "")


def test_the_script_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"arrayferry": "arrayferry_cli:main"}
    assert arrayferry_cli.main.__module__ == "arrayferry_cli"
    assert {"pytest", "typer", "rich"} == {
        r.partition(">")[0] for r in project["optional-dependencies"]["cli"]
    }


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_install_it(missing, run_python):
    out = run_python(
        f"import sys\nsys.modules[{missing!r}] = None\nsys.stderr = sys.stdout\n"
        "import arrayferry_cli\n"
        "try:\n    arrayferry_cli.main(['doctor'])\n"
        "except SystemExit as end:\n    print(end.code)"
    )
    expected = f"The command arrayferry needs {missing}, which is not installed. Run: pip install"
    source = 'or in the folder of its source pip install ".[cli]"'
    assert out == f'{expected} "arrayferry[cli]", {source}\n1\n'


@pytest.mark.long
def test_a_fault_of_its_own_is_not_taken_for_a_missing_extra(run_python):
    out = run_python(
        "import sys\nsys.modules['arrayferry_cli._doctor'] = None\nimport arrayferry_cli\n"
        "try:\n    arrayferry_cli.main(['doctor'])\n"
        "except ModuleNotFoundError as error:\n    print(error.name)"
    )
    assert out == "arrayferry_cli._doctor\n"


@pytest.mark.long
def test_importing_arrayferry_does_not_load_it(run_python):
    out = run_python(
        "import sys, arrayferry as af\naf.backends()\n"
        "print([m for m in ('typer', 'rich', 'arrayferry_cli') if m in sys.modules])"
    )
    assert out == "[]\n"


def test_help(run):
    status, out, _ = run("--help")
    assert status == 0
    assert [name for name in COMMANDS if f"  {name} " not in out] == []
    assert "..." not in out.partition("Commands:")[2]
    for name in COMMANDS:
        status, out, _ = run(name, "--help")
        assert status == 0
        assert "Usage: arrayferry" in out
        assert max(map(len, out.splitlines())) <= 100
    assert "--package" in out


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("doctor", ""),
        ("routes", "[SOURCE] [TARGET]"),
        ("check", "PACKAGE"),
        ("check-env", "MODULE:CLASS"),
        ("new-plugin", "NAME"),
    ],
)
def test_arguments_have_names_in_capitals(run, command, usage):
    shown = run(command, "--help")[1].splitlines()[0].replace("{", "").replace("}", "")
    assert shown == f"Usage: arrayferry {command} [OPTIONS] {usage}".rstrip()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing",),
        ("check",),
        ("doctor", "--nothing"),
        ("routes", "a", "b", "c"),
        ("doctor", "--timeout", "0"),
        ("doctor", "--timeout", "inf"),
    ],
)
def test_wrong_usage(run, arguments):
    assert run(*arguments)[0] == 2


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(200, marks=pytest.mark.long),
        pytest.param(80, marks=pytest.mark.long),
        46,
        pytest.param(12, marks=pytest.mark.long),
    ],
)
def test_screens_of_any_width(on_terminal, width):
    plain = on_terminal(width, "routes", ARRAYFERRY_PLUGINS="numpy,dask", NO_COLOR="1")
    assert "\x1b" not in plain
    words = plain.replace(":", "").split()
    assert [word for word in ("numpy", "dask", "computed") if word not in words] == []
    assert max(map(len, plain.splitlines())) <= width, plain
    assert [line for line in plain.splitlines() if line != line.rstrip()] == []


@pytest.mark.long
def test_colours_are_for_terminals(on_terminal):
    plugins = {"ARRAYFERRY_PLUGINS": "numpy"}
    assert "\x1b[32musable" in on_terminal(80, "doctor", **plugins)
    assert "\x1b" not in on_terminal(80, "doctor", TERM="dumb", **plugins)
    assert "\x1b" not in on_terminal(80, "doctor", NO_COLOR="1", FORCE_COLOR="1", **plugins)


@pytest.mark.long
def test_colours_can_be_forced(run, only, monkeypatch):
    only("numpy")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    status, out, err = run("doctor")
    assert (status, err) == (0, "")
    assert "\x1b[32musable" in out


def test_the_wheel_has_it(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    (path,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(path).namelist()
    root = ROOT / "cli"
    expected = {str(p.relative_to(root)) for p in root.rglob("*") if p.suffix in (".py", ".txt")}
    assert expected <= set(names)
    assert len([name for name in names if name.startswith("arrayferry_cli/template/")]) == 4
    metadata = zipfile.ZipFile(path)
    points = next(name for name in names if name.endswith("entry_points.txt"))
    assert "arrayferry = arrayferry_cli:main" in metadata.read(points).decode()


@pytest.mark.long
@pytest.mark.parametrize(
    ("stream", "status"),
    [
        pytest.param(">&-", 0, marks=pytest.mark.long),
        pytest.param("2>&-", 0, marks=pytest.mark.long),
        ("> /dev/full", 1),
    ],
)
def test_streams_that_cannot_be_written_to(stream, status):
    command = f"{sys.executable} -m arrayferry routes numpy torch {stream}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert ("Error: the output cannot be written: " in done.stderr) is (status == 1)
