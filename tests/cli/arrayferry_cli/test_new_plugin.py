"""`arrayferry new-plugin`: a distribution that can be installed, whose tests say what is left to write."""

import json
import shutil
import textwrap

import pytest
from cases import quick_if
from distributions import pip_install, plugin, run_pytest, write_distribution

LIBRARY = '''
"""A little array library: values in lists, which never change."""

import math
import struct


class NDArray:
    def __init__(self, cells, shape, kind):
        self._cells, self.shape, self.kind = tuple(cells), tuple(shape), kind

    def cells(self):
        return list(self._cells)


def from_cells(cells, shape, kind):
    if kind not in ("float32", "float64", "int32"):
        raise TypeError(f"no kind {kind}")
    if len(cells) != math.prod(shape):
        raise ValueError("shape")
    return NDArray(cells, shape, kind)
'''
TO_NUMPY = "import numpy as np\n\nreturn np.array(x.cells(), x.kind).reshape(x.shape)"
FROM_NUMPY = (
    "import littlelib\n\nreturn littlelib.from_cells(x.ravel().tolist(), x.shape, x.dtype.name)\n"
)
DTYPES = 'frozenset({"float32", "float64", "int32"})'
MAKE = "return littlelib.from_cells(values.ravel().tolist(), values.shape, values.dtype.name)"


def fill_in(path, method, code):
    """Replace the body that raises NotImplementedError."""
    head, start, rest = path.read_text().partition(f"    def {method}(")
    before, _, tail = rest.partition("        raise NotImplementedError(\n")
    _, _, tail = tail.partition("        )\n")
    body = textwrap.indent(code, " " * 8)
    path.write_text(f"{head}{start}{before}{body}\n{tail}")


@pytest.mark.long
def test_from_nothing_to_a_plugin_that_works(run, only, tmp_path, installed, monkeypatch):
    (installed / "littlelib.py").write_text(LIBRARY)
    options = "--package", "littlelib", "--directory", str(tmp_path)
    status, out, _ = run("new-plugin", "Little-Lib", *options)
    folder = tmp_path / "arrayferry-little-lib"
    assert status == 0
    only("numpy", "little_lib")
    assert "\n  write make() in " in out
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    modules = {"arrayferry_little_lib.py", "tests/test_little_lib.py"}
    assert files == {"pyproject.toml", "README.md", *modules}
    site = tmp_path / "site"
    assert '# install = "littlelib"  # remove' in (folder / "arrayferry_little_lib.py").read_text()

    def run_tests(chosen):
        return run_pytest(folder, "-k", chosen, "--tb=line", places=(site, installed))

    pip_install(folder, site)
    status, out = run_tests("numpy or recognised or copy or pickled")
    assert status == 1
    failures = [line for line in out.splitlines() if "Error: " in line and "FAILED" not in line]
    tasks = ("Write TestLittleLibBackend.make(values) in tests/test_little_lib.py",
             "Write LittleLibBackend.to_numpy(x) in arrayferry_little_lib.py",
             "Write LittleLibBackend.from_numpy(x) in arrayferry_little_lib.py")  # fmt: skip
    assert failures
    assert [line for line in failures if not any(task in line for task in tasks)] == []
    assert tasks[0] in out
    assert tasks[2] in out

    module, tests = folder / "arrayferry_little_lib.py", folder / "tests/test_little_lib.py"
    fill_in(tests, "make", MAKE)
    fill_in(module, "to_numpy", TO_NUMPY)
    fill_in(module, "from_numpy", FROM_NUMPY)
    module.write_text(module.read_text().replace("af.STANDARD_DTYPES", DTYPES))
    shutil.copy(module, site)
    status, out = run_tests("recognised")
    assert status == 1
    assert "array_types are ('littlelib.Array',)" in out
    assert "a littlelib.NDArray, which is recognised as an array of no known library" in out
    code = module.read_text().replace("littlelib.Array", "littlelib.NDArray")
    module.write_text(code.replace('memory = "writable"', 'memory = "immutable"'))
    shutil.copy(module, site)
    status, out = run_tests("test_")
    assert status == 0, out
    assert "skipped" not in out

    monkeypatch.syspath_prepend(str(site))
    found = json.loads(run("doctor", "--json")[1])
    assert found["ok"]
    (mine,) = [p for p in found["plugins"] if p["distribution"] == "arrayferry-little-lib"]
    assert (mine["status"], mine["version"]) == ("loaded", "0.1.0")
    assert mine["backends"] == ["little_lib"]
    assert ("little_lib", "usable") in [(x["name"], x["status"]) for x in found["libraries"]]


WRONG_NAMES = [
    ("3d", "x", "begin with a letter"),
    ("..", "x", "is not the name of a distribution"),
    ("arrayferry-", "x", "is not the name of a distribution"),
    ("class", "x", "'class' is a keyword of Python"),
    ("mine", "import", "'import' is a keyword of Python"),
    ("mine", "a-b", "'a-b' is not the name of a module"),
    ("mine", "arrayferry", "is a package of arrayferry"),
    ("mine", "arrayferry_mine", "the module of the plugin itself"),
    ("plugins", "x", "arrayferry_plugins, but this is a package of arrayferry"),
    ("torch", "x", "the name 'torch' is taken by the backend 'torch'"),
    ("mine", "torch", "torch already has a backend: the backend 'torch'"),
    ("jnp", "x", "the name 'jnp' is taken by the backend 'jax'"),
    ("taken", "x", "is taken by the backend 'taken' of the plugin 'taken'"),
]


@pytest.mark.parametrize(
    ("name", "package", "words"),
    quick_if(WRONG_NAMES, lambda row: not {"torch", "jnp"} & {*row}),
)
def test_wrong_names_are_refused(run, tmp_path, installed, name, package, words):
    write_distribution(installed, "taken", plugin("taken"))
    place = tmp_path / "place"
    status, out, err = run("new-plugin", name, "--package", package, "--directory", str(place))
    assert (status, out) == (2, "")
    assert words in err
    assert not place.exists()


@pytest.mark.long
def test_nothing_is_overwritten(run, tmp_path):
    arguments = ("new-plugin", "mine", "--package", "not_there", "--directory", str(tmp_path))
    assert run(*arguments)[0] == 0
    assert (
        '    # "not-there",  # remove' in (tmp_path / "arrayferry-mine/pyproject.toml").read_text()
    )
    written = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for _ in range(2):
        _, _, err = run(*arguments, status=2)
        assert "arrayferry-mine cannot be made: File exists. Nothing was written" in err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == written
    for part in (tmp_path / "arrayferry-other", tmp_path / "file"):
        part.write_text("mine")
    status, _, err = run("new-plugin", "other", *arguments[2:])
    assert (status, (tmp_path / "arrayferry-other").read_text()) == (2, "mine")
    _, _, err = run(*arguments[:-1], str(tmp_path / "file"), status=2)
    assert "arrayferry-mine cannot be made: Not a directory." in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.long
def test_a_plugin_that_crashes_is_left_out(run, tmp_path, installed):
    write_distribution(installed, "taken", plugin("taken"))
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
    write_distribution(installed, "crash", crash)
    (installed / "mine.py").write_text(crash)  # the library is not imported
    place = ("--directory", str(tmp_path))
    assert run("new-plugin", "mine", *place)[0] == 0
    _, _, err = run("new-plugin", "taken", *place, status=2)
    assert "is taken by the backend 'taken' of the plugin 'taken'" in err


def test_nothing_is_left_if_a_file_cannot_be_written(run, tmp_path):
    name = "m" * 242  # a folder may have that name, and the module is a few letters longer
    _, _, err = run("new-plugin", name, "--package", "x", "--directory", str(tmp_path), status=2)
    assert "cannot be made: File name too long. Nothing was written" in err
    assert list(tmp_path.iterdir()) == []
