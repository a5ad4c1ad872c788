"""`arrayferry doctor`: nothing that is installed takes it down, and it says what to do."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import plugin, write_distribution
from remote_workers import eventually

import arrayferry as af
from arrayferry_cli import _check, _doctor
from arrayferry_cli._ask import without_paths
from arrayferry_cli._plugins import look

CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
HANG = "import threading\nthreading.Event().wait()"
RUDE = """
import os
for number in range(3, 12):
    try:
        os.write(number, b"[]")
    except OSError:
        pass
"""


def report(run, *options):
    status, out, _ = run("doctor", "--json", *options)
    found = json.loads(out)
    assert status == (0 if found["ok"] else 1)
    return found


def with_library(folder, name, code):
    """Install a library and a plugin for it."""
    (folder / f"{name}_library.py").write_text(code)
    write_distribution(folder, name, plugin(name, f"{name}_library"))


def by_name(found, what):
    return {part["name"]: part for part in found[what]}


def test_what_works(run, only):
    only("numpy", "cupy")
    found = report(run)
    assert found["ok"] is (by_name(found, "libraries")["cupy"]["status"] != "not usable")
    assert found["schema"] == 1
    assert found["versions"]["arrayferry"] == af.__version__
    packages = {"arrayferry", "numpy", "array-api-compat", "pluggy", "gymnasium"}
    assert set(found["versions"]) == packages
    assert found["settings"] == {"ARRAYFERRY_PLUGINS": "numpy,cupy"}
    numpy = by_name(found, "libraries")["numpy"]
    assert numpy["status"] == "usable"
    assert numpy["version"] == found["versions"]["numpy"]
    assert numpy["devices"] == ["cpu"]
    assert numpy["float64"] is True
    plugins = by_name(found, "plugins")
    assert plugins["numpy"]["status"] == "loaded"
    assert plugins["numpy"]["origin"] == "entry point"
    assert plugins["numpy"]["distribution"] == "arrayferry"
    assert plugins["torch"]["status"] == "not loaded"


def test_it_needs_no_other_package_than_numpy_and_pluggy(run_python):
    """The packages of the extra are not needed, and none that made tables or colours."""
    out = run_python(
        "import sys\n"
        "for name in ('pytest', 'rich', 'typer', 'click'):\n    sys.modules[name] = None\n"
        "import os\nos.environ['ARRAYFERRY_PLUGINS'] = 'numpy'\n"
        "import arrayferry_cli\narrayferry_cli.main(['doctor'])"
    )
    assert out.endswith("Nothing is broken.\n")


@pytest.mark.long
def test_a_library_that_is_not_installed_is_no_fault(run, only, installed):
    write_distribution(installed, "absent", plugin("absent", "not_there"))
    only("numpy", "absent")
    absent = by_name(report(run), "libraries")["absent"]
    assert absent["status"] == "not installed"
    assert absent["remedy"] == "Run: pip install absent"
    _, out, _ = run("doctor", status=0)
    assert out.endswith("Nothing is broken.\n")


@pytest.mark.long
def test_x64_of_jax(run, only, monkeypatch):
    only("numpy", "jax")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert by_name(report(run), "libraries")["jax"]["float64"] is True


LIBRARIES = {
    "crashing": (CRASH, "importing crashing_library failed: it crashed with SIGSEGV"),
    "exiting": (
        "import os\nprint('bye')\nos._exit(3)",
        "ended the process with exit status 3 (bye)",
    ),
    "leaving": ("import sys\nsys.exit(3)", "failed with SystemExit: 3"),
    "missing": ("import not_there", "No module named 'not_there'"),
    "aborting": (
        f"raise ImportError('cannot open {Path.home()}/lib/libcuda.so, /data/someone/x.so')",
        "cannot open .../lib/libcuda.so, .../x.so",
    ),
}
TRIED = {
    "lists": (
        "return x.values",
        "return x.values.tolist()",
        "to_numpy() of the backend 'lists' returned a list",
    ),
    "lying": (
        "return Array(x)",
        "return Array(x + 1)",
        "an array of [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]] and dtype float32 was converted and came back as [[2.0, 1.0, 2.0], [1.0, 2.0, 1.0]]",
    ),
    "nothing": ("return Array(x)", "Array(x)", "returned a NoneType"),
    "blind": ("blind_plugin.Array", "blind_plugin.Grid", "which is not one of its array_types"),
    "leaves": (
        "return x.values",
        "raise SystemExit(3)",
        "converting a few numbers failed: SystemExit: 3",
    ),
    "kinds": (
        "def copy",
        "def dtypes(self): return 5\n    def copy",
        "dtypes() of its plugin failed: TypeError",
    ),
}
SOURCE = """
import arrayferry as af

class Columns(af.Source):
    name, package, array_types = "source", "source_library", ("source_library.Column",)

    def to_numpy(self, x):
        return x.values

def arrayferry_sources():
    return [Columns()]
"""
DTYPES = {"ints": "{'int32'}", "bools": "{'bool'}", "odd": "{'bfloat16'}"}


@pytest.mark.long
def test_libraries_that_fail_leave_the_others(run, only, installed):
    """Each is imported, and a few numbers are converted, in a process of its own."""
    for name, (code, _) in LIBRARIES.items():
        with_library(installed, name, code)
    for name, (line, instead, _) in TRIED.items():
        assert line in plugin(name)
        write_distribution(installed, name, plugin(name).replace(line, instead))
    for name, dtypes in DTYPES.items():
        code = plugin(name).replace("def copy", f"def dtypes(self): return {dtypes}\n    def copy")
        fits = f"assert x.dtype.name in {dtypes}\n        return Array(x)"
        write_distribution(installed, name, code.replace("return Array(x)\n", f"{fits}\n", 1))
    (installed / "source_library.py").write_text(CRASH)
    write_distribution(installed, "source", SOURCE)
    licence = "def check(self):\n        return 'there is no licence'\n\n    def copy"
    write_distribution(installed, "checked", plugin("checked").replace("def copy", licence))
    with_library(installed, "noisy", "import os\nprint('x' * 99)\nos.write(1, b'noise')")
    with_library(installed, "rude", RUDE)
    only("numpy", "source", "checked", "noisy", "rude", *LIBRARIES, *TRIED, *DTYPES)
    found = report(run)
    libraries = by_name(found, "libraries")
    for name, (*_, words) in {**LIBRARIES, **TRIED}.items():
        assert libraries[name]["status"] == "not usable"
        assert words in libraries[name]["problem"], libraries[name]
        change = f"Change Toy in {name}_plugin, or report it to its authors."
        assert name in LIBRARIES or change in libraries[name]["remedy"]
    assert "it crashed with SIGSEGV" in libraries["source"]["problem"]
    assert "there is no licence" in libraries["checked"]["problem"]
    assert libraries["checked"]["remedy"] is None
    for name in ("noisy", "rude", "numpy", *DTYPES):
        assert libraries[name]["status"] == "usable", libraries[name]
    assert str(Path.home()) not in json.dumps(found)


@pytest.mark.long
def test_a_library_that_hangs(run, only, installed):
    with_library(installed, "hanging", HANG)
    only("numpy", "hanging")
    _, out, _ = run("doctor", "--timeout", "20", status=1)
    words = "importing hanging_library took longer than 20 seconds"
    assert f"library hanging: {words}\n    Update or reinstall hanging_library." in out


PLUGINS = {
    "crashing": (CRASH, "loading the plugin crashing failed: it crashed with SIGSEGV"),
    "failing": ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
    "leaving": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "empty": ("", "implements no hook"),
    "classes": (plugin("classes").replace("[Toy()]", "[Toy]"), "where a Backend is expected"),
    "taken": (plugin("taken").replace('"taken"', '"numpy"'), "the name 'numpy' is taken by"),
    "rude": ("raise ValueError('\\x1b[31mred\\x07' + 'x' * 100_000)", "\\x1b[31mred"),
}


def test_plugins_that_fail_leave_the_others(run, only, installed):
    for name, (code, _) in PLUGINS.items():
        write_distribution(installed, name, code)
    write_distribution(installed, "working", plugin("working"))
    write_distribution(installed, "numpy", "x = 1", "arrayferry-np")
    only("numpy", "working", "nmupy", *PLUGINS)
    _, out, _ = run("doctor", status=1)
    lines = [line.strip() for line in out.splitlines()]
    for name, (_, words) in PLUGINS.items():
        line = next(line for line in lines if line.startswith(f"plugin {name}: "))
        assert words in line
        assert lines[lines.index(line) + 1].endswith("."), out  # what to do
    assert "arrayferry-working 1.0, entry point, loaded: working" in lines
    assert f"arrayferry {af.__version__}, entry point, loaded: numpy" in lines
    assert "arrayferry-np 1.0, entry point, broken: numpy" in lines
    assert "Fix failing_plugin, or update or uninstall arrayferry-failing." in lines
    assert any("'nmupy'" in line and "Did you mean 'numpy'?" in line for line in lines)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out) < 10_000


START = """
import os, subprocess
started = subprocess.Popen(["sleep", "600"])
with open(FILE, "a") as file:
    print(started.pid, file=file)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["aborts", "forks"])
def test_no_process_is_left_behind(run, only, installed, tmp_path, name):
    end = "os.abort()" if name == "aborts" else "os.fork()\n" + plugin(name)
    write_distribution(installed, name, START.replace("FILE", repr(str(tmp_path / "pids"))) + end)
    only("numpy", name)
    status, _, _ = run("doctor")
    assert status == (1 if name == "aborts" else 0)
    eventually(lambda: all_have_ended((tmp_path / "pids").read_text()), 30)


def all_have_ended(pids):
    """Tell whether processes that were killed have ended. They may stay zombies, if nobody reaps them."""
    for pid in pids.split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
                return False
    return True


@pytest.mark.long
def test_it_ends_what_it_started_when_it_is_ended(only, installed, tmp_path):
    pids = tmp_path / "pids"
    code = f"import os\nwith open({str(pids)!r}, 'a') as file:\n    print(os.getpid(), file=file)\n{HANG}"
    write_distribution(installed, "hanging", code)
    path = os.pathsep.join([str(installed), *sys.path])
    env = {**os.environ, "ARRAYFERRY_PLUGINS": "hanging", "PYTHONPATH": path}
    command = [sys.executable, "-m", "arrayferry", "doctor"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: pids.exists() and pids.read_text().endswith("\n"))
    process.terminate()
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == 128 + signal.SIGTERM
    eventually(lambda: all_have_ended(pids.read_text()), 30)


@pytest.mark.long
def test_nothing_is_left_in_this_folder(run, toy, tmp_path, monkeypatch):
    toy(("return x.values\n", "open('LEFT', 'w').close()\n        return x.values\n"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert report(run)["ok"]
    assert list(here.iterdir()) == []
    here.rmdir()
    assert run("doctor")[0] == 0


def test_what_is_registered_at_run_time(register):
    class Mine(af.Backend):
        name, package, array_types = "mine", "builtins", ("builtins.Nothing",)
        to_numpy = from_numpy = None

    register(Mine())
    found = look(lambda step: None, {}, [])
    (mine,) = [plugin for plugin in found["plugins"] if plugin["name"] == "mine"]
    assert (mine["origin"], mine["status"], mine["backends"]) == ("registered", "loaded", ["mine"])
    assert _doctor._plugins([mine]) == ["  no distribution, registered, loaded: mine"]
    assert _check._matching("mine", found) == [mine]


PATHS = [
    ("open '/opt/a b/c.so'", "open '.../a b/c.so'"),
    (r"open C:\Users\someone\x.dll", "open .../x.dll"),
    ("'dask[array]' (or https://a.org/b/c), a/b", "'dask[array]' (or https://a.org/b/c), a/b"),
    (f"{Path.home()}: no", "...: no"),
    (f"{Path.home()}er/x", ".../x"),
    ("https://a.org" + str(Path.home()), "https://a.org" + str(Path.home())),
    ("error:file:///data/someone/x.so", "error:.../x.so"),
]


@pytest.mark.parametrize(("text", "shown"), PATHS)
def test_paths_are_not_told(text, shown):
    assert without_paths(text) == shown
