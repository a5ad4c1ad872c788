"""Which package may import which, and which module of a package which of its own."""

import ast
import graphlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from arrayferry._utilities import caller
from arrayferry_cli import _new_plugin

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/internals.md").read_text()
TABLE = runpy.run_path(str(ROOT / "tools/alone.py"))
FOLDERS = {name: ROOT / top / name for name, top in TABLE["TOPS"].items()}
STATED = {name: set(needs) for name, needs in TABLE["STATED"].items()}
"""What each package needs, as the page says."""
ANNOUNCED = {"arrayferry_functions", "arrayferry_streams", "arrayferry_gym"}
"""The layers that announce hooks."""
LAYERS = {
    "__init__.py",  # the names of other packages that users find in `arrayferry`
    "__main__.py",  # the command
    "testing.pyi",
    "_utilities/caller.py",  # whose lines are ours
    "_registry/discovery.py",  # the home of the built-in plugins
}
"""Where the kernel names another package."""


def needs(package):
    """Return all that a package may import: what it needs, and what that needs."""
    direct = STATED[package]
    return direct.union(*map(needs, direct))


def imported_by(nodes, package):
    """Return the modules and names that statements import, by their full names."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def imports_of(package):
    """Map each module of a package to what it imports from all packages, also in functions and for type checkers."""
    folder, found = FOLDERS[package], {}
    for path in [*folder.rglob("*.py"), *folder.rglob("*.pyi")]:
        parts = path.relative_to(folder.parent).with_suffix("").parts
        names = imported_by(ast.walk(ast.parse(path.read_text())), parts[:-1])
        name = ".".join(parts).removesuffix(".__init__")
        found[name] = {each for each in names if each.partition(".")[0] in FOLDERS}
    return found


def across(package):
    """Return what a package imports from others."""
    names = {name for names in imports_of(package).values() for name in names}
    return {name for name in names if name.partition(".")[0] != package}


def is_private(name):
    """Return whether a name is private: those of `arrayferry._utilities` are for all packages of this distribution."""
    name = name.removeprefix("arrayferry._utilities.")
    return any(part[0] == "_" and part[:2] != "__" for part in name.split("."))


def test_the_wheel_has_the_packages_of_the_table():
    """Hatchling says nothing of a folder that is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(ROOT / each for each in packages) == sorted(FOLDERS.values())
    tops = {folder.parent for folder in FOLDERS.values()}
    here = {path.parent for top in tops for path in top.glob("*/__init__.py")}
    assert here == set(FOLDERS.values())
    assert all((folder / "py.typed").exists() for folder in FOLDERS.values())


def test_packages_are_listed_where_they_are_told_from_others():
    assert set(_new_plugin.OURS) == set(FOLDERS)
    assert set(caller.OURS) == set(FOLDERS) - {"arrayferry_cli", "arrayferry_kit"}


def test_no_package_needs_itself():
    order = [*graphlib.TopologicalSorter(STATED).static_order()]
    assert order[0] == "arrayferry"
    assert order[-1] == "arrayferry_cli"


def is_needed(package, name):
    """Return whether a package may import a name: from what it needs, or, for plugins, from layers with hooks."""
    said = ANNOUNCED if package == "arrayferry_plugins" else ()
    return name.partition(".")[0] in {*needs(package), *said}


def test_packages_import_only_public_names_of_what_they_need():
    found = {
        (package, name)
        for package in FOLDERS
        if package != "arrayferry"  # see the test of the kernel
        for name in across(package)
        if is_private(name) or not is_needed(package, name)
    }
    assert not found


def test_what_a_plugin_says_to_a_layer_is_imported_in_its_hook():
    """So that a layer may be missing."""
    imports, folder = imports_of("arrayferry_plugins"), FOLDERS["arrayferry_plugins"]
    says = {
        name for name, found in imports.items() if {x.partition(".")[0] for x in found} & ANNOUNCED
    }
    assert len(says) > 5
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found = imported_by(ast.parse(path.read_text()).body, parts[:-1])
        at_once = {each for each in says if any(f"{x}.".startswith(f"{each}.") for x in found)}
        assert name in says or not at_once, name


def test_the_kernel_names_no_other_package():
    names = re.compile(rf"\b({'|'.join(set(FOLDERS) - {'arrayferry'})})\b")
    found = set()
    for path in [*FOLDERS["arrayferry"].rglob("*.py"), *FOLDERS["arrayferry"].rglob("*.pyi")]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = ""  # documentation
        if names.search(ast.unparse(tree)):
            found.add(path.relative_to(FOLDERS["arrayferry"]).as_posix())
    assert found == LAYERS


def test_examples_import_no_private_module():
    for path in (ROOT / "examples").rglob("*.py"):
        names = imported_by(ast.walk(ast.parse(path.read_text())), ())
        assert not [x for x in names if x.partition(".")[0] in FOLDERS and is_private(x)]


def wings_of(package):
    """Return the names at the left of the map of a package, the lowest first."""
    text = PAGE.partition(f"\n`{package}`:\n\n```\n")[2].partition("```")[0]
    lines = re.findall(r"^\w+(?:  \w+)*(?=   |$)", text, re.MULTILINE)
    return [wing for line in lines[::-1] for wing in line.split()[::-1]]


MAPPED = ("arrayferry", "arrayferry_gym", "arrayferry_envs", "arrayferry_cluster")
"""The packages whose modules are in layers. All modules that the map does not name, the public face, may import any."""


def modules_of(package):
    """Map each module of a package to the modules of the same package that it imports."""
    imports = imports_of(package)

    def home(name):
        return name if name in imports else name.rpartition(".")[0]

    return {name: {*map(home, names)} & imports.keys() for name, names in imports.items()}


@pytest.mark.parametrize("package", FOLDERS)
def test_no_circular_imports(package):
    imports = modules_of(package)
    imports[package] = set()  # it imports its names lazily
    graphlib.TopologicalSorter(imports).prepare()  # its error names the modules of a circle


@pytest.mark.parametrize("package", MAPPED)
def test_modules_import_only_from_lower_layers(package):
    wings = wings_of(package)

    def level(module):
        wing = module.removeprefix(f"{package}.").partition(".")[0]
        return wings.index(wing) if wing in wings else len(wings)

    imports = modules_of(package)
    assert {f"{package}.{wing}" for wing in wings} <= imports.keys()
    edges = [(module, other) for module, others in imports.items() for other in others]
    assert len(edges) > 10
    assert [(a, b) for a, b in edges if package not in (a, b) and level(b) > level(a)] == []


NEW = """
import pickle, arrayferry as af, numpy as np
x = np.ones(2)
for wrong in ({"empties": "no"}, {"empties": "no", "device": "cpu"}):
    for call in (lambda **o: af.convert(x, "torch", **o), lambda **o: af.converter("torch", **o), lambda **o: af.agnostic("torch", **o)):
        try:
            call(**wrong)
        except af.OptionError as error:
            assert "empties='no' is not valid. Pass one of 'keep', 'raise'" in str(error)
        else:
            raise AssertionError(call)
assert af.convert(x, "torch", empties="raise", copy=True).tolist() == [1, 1]
made = af.converter("torch", empties="raise", scalars="convert")
assert repr(made) == "arrayferry.converter('torch', empties='raise', scalars='convert')"
assert pickle.loads(pickle.dumps(made)).options == made.options == af.Options(empties="raise", scalars="convert")
assert list(af.stream(x, "torch", sparse="dense"))[0].tolist() == [1, 1]
"""


def patched(tmp_path, name, most):
    """Copy packages and tests, and apply a patch of at most so many files of packages. Return a function that runs Python."""
    patch = Path(__file__).with_name(name).read_text()
    files = re.findall(r"^\+\+\+ b/(?!tests/)(.*)", patch, re.MULTILINE)
    assert 0 < len(files) <= most
    tops = ("core", "plugins", "gym_adapters")
    for top in (*tops, "tests", "docs", "tools"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    for each in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / each, tmp_path)
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    places = [*(str(tmp_path / top) for top in tops), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}

    def run(*arguments):
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def check(script, names, tests, least):
        """Run a script, and of the tests those with these names, of which there are more than so many."""
        run(
            "-c",
            f"import arrayferry\nassert arrayferry.__file__.startswith({str(tmp_path)!r})\n{script}",
        )
        told = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, *tests)
        assert int(re.search(r"(\d+) passed", told)[1]) > least

    return check


@pytest.mark.long
def test_an_option_is_in_three_files_of_the_core(tmp_path):
    """A patch adds one to a copy, in the middle, and all tests of options pass."""
    names = "options or option or like or pickle or explain or repr or kept"
    tests = ["tests/core/arrayferry", "tests/core/arrayferry_functions"]
    patched(tmp_path, "option.patch", 3)(NEW, names, tests, 50)


TOLD = """
import pytest
from arrayferry_envs import CartPole
from arrayferry_gym.sb3 import SB3VecEnv
from arrayferry_gym.vector import JaxToTorch
envs = CartPole().make_vec(3, xp="jax", autoreset_mode="NextStepTold", max_episode_steps=2)
both = JaxToTorch(envs, stack_final=True)
both.reset(seed=1)
for step in range(4):
    observation, *_, infos = both.step(both.action_space.sample())
    assert infos["_final_obs"].all() == (step == 1)
    assert (infos["final_obs"] == observation).all()
with pytest.raises(arrayferry.OptionError, match="resets in the step after the last"):
    SB3VecEnv(envs)
"""


@pytest.mark.long
def test_an_autoreset_mode_is_in_four_files_of_the_adapters(tmp_path):
    """A patch adds one to a copy: it resets in the next step, and tells last observations. All tests of modes pass."""
    folder = "tests/gym_adapters/arrayferry_"
    tests = [
        *(f"{folder}envs/test_{name}.py" for name in ("episodes", "engine", "video", "evaluate")),
        *(f"{folder}envs/test_{name}.py" for name in ("functional", "env_options", "kernels")),
        f"{folder}gym/test_kernels.py",
        f"{folder}audit/test_check_vector_env.py",
    ]
    patched(tmp_path, "mode.patch", 4)(TOLD, "TOLD and not processes", tests, 40)


KEPT = """
import gymnasium as gym, pettingzoo, pytest, torch
from arrayferry_gym import ArrayConversion, NumpyToTorch, pettingzoo as games, vector
class Keeps(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        self.given = options
        return self.env.reset(seed=seed)
for convert in (True, False):
    env = Keeps(gym.make("CartPole-v1"))
    made = NumpyToTorch(env, convert_options=convert)
    made.reset(options={"x": torch.ones(2)})
    assert isinstance(env.given["x"], torch.Tensor) != convert
    assert made._saved_kwargs == ({} if convert else {"convert_options": False})
envs, game = gym.make_vec("CartPole-v1", 2), pettingzoo.make("parallel", "classic/rps-v2")
for make, inner in ((vector.ArrayConversion, envs), (games.ParallelConversion, game), (vector.JaxToNumpy, envs)):
    for name, told in (("convert_options", "='no' is not valid. Pass True"), ("convert_option", " Write convert_options=")):
        with pytest.raises(arrayferry.OptionError, match=told):
            make(inner, **{name: "no"})
"""


@pytest.mark.long
def test_an_option_is_in_three_files_of_the_adapters(tmp_path):
    """A patch adds one to a copy: whether the options of resets are converted. All tests of options pass."""
    folder = "tests/gym_adapters/arrayferry_"
    tests = [f"{folder}gym", f"{folder}envs/test_compatibility.py", "tests/types"]
    names = "option or overloads or unknown or spec or record or pickle or repr"
    patched(tmp_path, "adapter_option.patch", 3)(KEPT, names, tests, 40)
