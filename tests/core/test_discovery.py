"""Plugins installed by pip into a separate virtual environment, working ones and broken ones."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{distribution}"
version = "1.0"
[project.entry-points.arrayferry]
{entry} = "{module}"
[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""

WORKING = """
import arrayferry as af

class Array:
    def __init__(self, rows):
        self.rows = rows

class MiniBackend(af.Backend):
    name = "mini"
    package = "plugin_mini"
    array_types = ("plugin_mini.Array",)

    def to_numpy(self, x):
        return x.rows.copy()

    def from_numpy(self, x, device=None):
        return Array(x.copy())

@af.hookimpl
def arrayferry_backends():
    return [MiniBackend()]
"""

BACKEND = """
import arrayferry as af

class Broken(af.Backend):
    name = "broken"
    package = "types"
    array_types = ("types.SimpleNamespace",)
    def to_numpy(self, x):
        return x
    def from_numpy(self, x, device=None):
        return x

@af.hookimpl
def arrayferry_backends():
    return [Broken()]
"""

BROKEN = {
    "importerror": (
        "import a_module_that_is_not_there",
        "ModuleNotFoundError.*a_module_that_is_not_there",
    ),
    "syntaxerror": ("def f(:\n    pass", "SyntaxError"),
    "wrongtype": (BACKEND.replace("[Broken()]", "[3]"), "returned 3, where a Backend is expected"),
    "noiterable": (BACKEND.replace("[Broken()]", "3"), "returned 3, where a list of Backend"),
    "forgotten": (
        BACKEND.replace("return [Broken()]", "[Broken()]"),
        "arrayferry_backends returned None, where a list of Backend is expected. Write return",
    ),
    "raises": (
        BACKEND.replace("return [Broken()]", "raise RuntimeError('no luck')"),
        "RuntimeError: no luck",
    ),
    "nametaken": (
        BACKEND.replace('"broken"', '"torch"'),
        "the name 'torch' is taken by the backend 'torch'",
    ),
    "typetaken": (
        BACKEND.replace("types.SimpleNamespace", "torch.Tensor").replace('"broken"', '"typetaken"'),
        "array type torch.Tensor is taken by the backend 'torch'",
    ),
    "missingmethod": (BACKEND.replace("def from_numpy", "def other"), "TypeError.*from_numpy"),
    "unknownhook": (
        BACKEND + "\n@af.hookimpl\ndef arrayferry_nonsense():\n    return []\n",
        "arrayferry_nonsense",
    ),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "nohook": ("x = 1", "implements no hook"),
}
ABSENT = (
    BACKEND.replace('"types"', '"a_missing_library"')
    .replace('"broken"', '"absent"')
    .replace("types.SimpleNamespace", "a_missing_library.Array")
)


def _write(folder: Path, entry: str, code: str) -> Path:
    place = folder / entry
    place.mkdir()
    module = f"plugin_{entry}"
    (place / f"{module}.py").write_text(textwrap.dedent(code))
    (place / "pyproject.toml").write_text(
        PYPROJECT.format(distribution=f"arrayferry-{entry}", entry=entry, module=module)
    )
    return place


def _environment(folder: Path, plugins: dict[str, str]) -> str:
    """A new virtual environment that sees the packages installed here, with plugins from pip."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
    )
    python = str(folder / "venv" / "bin" / "python")
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    here = sysconfig.get_path("purelib")
    Path(site, "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    places = [str(_write(folder, entry, code)) for entry, code in plugins.items()]
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([*install, *places], check=True, env=env)
    return python


@pytest.fixture(scope="module")
def working(tmp_path_factory):
    return _environment(tmp_path_factory.mktemp("working"), {"mini": WORKING})


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    plugins = {entry: code for entry, (code, _) in BROKEN.items()}
    return _environment(
        tmp_path_factory.mktemp("broken"), {**plugins, "absent": ABSENT, "mini": WORKING}
    )


@pytest.mark.long
def test_two_methods_make_every_pair_work(working, run_python):
    out = run_python(
        """
import numpy as np, torch, jax.numpy as jnp, dask.array as da, array_api_strict as strict
import arrayferry as af, plugin_mini
assert af.backends()["mini"].usable
others = {"numpy": np.asarray, "torch": torch.asarray, "jax": jnp.asarray,
          "dask": da.from_array, "array_api_strict": strict.asarray}
n = np.arange(6, dtype=np.float32).reshape(2, 3)
for name, make in others.items():
    there = af.convert({"x": [make(n)]}, "mini")["x"][0]
    assert type(there) is plugin_mini.Array, name
    assert (there.rows == n).all() and there.rows.dtype == n.dtype
    back = af.convert((there,), name)[0]
    assert af.backend_of(back).name == name
    assert (np.asarray(af.convert(back, "numpy")) == n).all()
    print(af.route("mini", name), "|", af.route(name, "mini"))
""",
        python=working,
    )
    assert "mini (cpu) -> numpy (cpu)" in out
    assert len(out.splitlines()) == 5


PROBE = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True, action="always") as caught:
    import arrayferry as af
    known = dict(af.backends())
assert {"numpy", "torch", "jax", "dask", "cupy", "mini"} <= set(known), known
assert type(af.convert(np.ones(2), "torch")).__name__ == "Tensor"
assert type(af.convert(np.ones(2), "mini")).__name__ == "Array"
assert all(w.category is af.PluginWarning for w in caught), [str(w.message) for w in caught]
for w in caught:
    print(str(w.message).replace(chr(10), " "))
"""


@pytest.fixture(scope="module")
def messages(broken, run_python):
    return run_python(PROBE, python=broken).splitlines()


@pytest.mark.parametrize("entry", BROKEN)
def test_a_broken_plugin_is_named_and_affects_no_other(messages, entry):
    import re

    mine = [line for line in messages if f"'{entry}'" in line]
    assert len(mine) == 1, messages
    assert f"the distribution arrayferry-{entry}" in mine[0]
    assert re.search(BROKEN[entry][1], mine[0]), mine[0]


def test_each_broken_plugin_warns_once(messages):
    assert len(messages) == len(BROKEN)


def test_a_backend_without_its_library_is_known_and_no_command_is_guessed(broken, run_python):
    out = run_python(
        """
import warnings; warnings.simplefilter("ignore")
import numpy as np, arrayferry as af
absent = af.backends()["absent"]
print(absent.installed, absent.usable)
try:
    af.convert(np.ones(1), "absent")
except af.BackendUnavailableError as error:
    print(error)
""",
        python=broken,
    )
    assert out.splitlines() == [
        "False False",
        "absent is not installed: there is no module 'a_missing_library'. Install its library, as the documentation of "
        "that says.",
    ]


def test_only_requested_plugins_are_loaded(working, run_python):
    script = "import arrayferry as af; print(sorted(af.backends()))"
    out = run_python(script, python=working, env={"ARRAYFERRY_PLUGINS": "numpy, mini"})
    assert out.strip() == "['mini', 'numpy']"
    out = run_python(script, python=working, env={"ARRAYFERRY_DISABLE_AUTOLOAD": "1"})
    assert out.strip() == "[]"


NAMES = """
import warnings; warnings.simplefilter("ignore")
import arrayferry as af
for name in ("jax", "importerror", "typetaken", "jxa"):
    for _ in range(2):
        try:
            af.converter(name)
        except af.UnknownBackendError as error:
            print(str(error).replace(chr(10), " "))
        else:
            print("known")
        af.registry.refresh()
"""


@pytest.mark.long
def test_the_name_of_a_plugin_that_is_broken(broken, run_python):
    lines = run_python(NAMES, python=broken).splitlines()
    assert lines[:2] == ["known", "known"]
    start = "no array library is known as"
    assert lines[2].startswith(
        f"{start} 'importerror': arrayferry left out the plugin 'importerror' of the distribution "
        "arrayferry-importerror (plugin_importerror): ModuleNotFoundError: No module named "
        "'a_module_that_is_not_there', at plugin_importerror.py:1. Known are: "
    )
    assert "the array type torch.Tensor is taken by the backend 'torch'" in lines[4]
    assert f"{start} 'jxa'. Did you mean 'jax'? Known are: " in lines[6]
    assert " Left out are: " in lines[6]
    assert lines[2:8:2] == lines[3:8:2]


@pytest.mark.long
def test_the_name_of_a_plugin_that_is_not_loaded(working, run_python):
    lines = run_python(
        NAMES, python=working, env={"ARRAYFERRY_PLUGINS": "numpy, mini"}
    ).splitlines()
    start = "no array library is known as 'jax': the plugin of that name is installed, but"
    assert lines[0].startswith(f"{start} ARRAYFERRY_PLUGINS does not name it. Known are: ")
    assert lines[0] == lines[1]
    assert "Did you mean 'jax'? " in lines[6]
    assert "Left out are: awkward, cupy, dask, " in lines[6]
    lines = run_python(NAMES, python=working, env={"ARRAYFERRY_DISABLE_AUTOLOAD": "1"}).splitlines()
    assert (
        "Known are: none: no plugin is loaded, since ARRAYFERRY_DISABLE_AUTOLOAD is set."
        in lines[0]
    )


def test_a_requested_plugin_that_is_not_installed(working, run_python):
    script = (
        "import warnings, arrayferry as af\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always'); af.backends()\n"
        "print(caught[0].message)"
    )
    out = run_python(script, python=working, env={"ARRAYFERRY_PLUGINS": "numpy,troch"})
    assert "'troch'" in out
    assert "Did you mean 'torch'" in out
