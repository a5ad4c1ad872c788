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


MAPPED = (
    "arrayferry",
    "arrayferry_translate",
    "arrayferry_gym",
    "arrayferry_envs",
    "arrayferry_cluster",
)
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
import pickle, pytest, numpy as np
x = np.ones(2)
for wrong in ({"empties": "no"}, {"empties": "no", "device": "cpu"}):
    for call in (lambda **o: af.convert(x, "torch", **o), lambda **o: af.converter("torch", **o), lambda **o: af.agnostic("torch", **o)):
        with pytest.raises(af.OptionError, match="empties='no' is not valid. Pass one of 'keep', 'raise'"):
            call(**wrong)
assert af.convert(x, "torch", empties="raise", copy=True).tolist() == [1, 1]
made = af.converter("torch", empties="raise", scalars="convert")
assert repr(made) == "arrayferry.converter('torch', empties='raise', scalars='convert')"
assert pickle.loads(pickle.dumps(made)).options == made.options == af.Options(empties="raise", scalars="convert")
assert list(af.stream(x, "torch", sparse="dense"))[0].tolist() == [1, 1]
"""


TOLD = """
import os, tempfile
import pytest
from arrayferry_gym import _episodes
told = _episodes.Episodes.final_infos  # of which one more key is added, before others import it
_episodes.Episodes.final_infos = staticmethod(lambda *args: {**told(*args), "final_seed": args[-1], "_final_seed": args[-1]})
_episodes.Episodes.FINAL = _episodes.Episodes.final_infos(None, True, None).keys()
from arrayferry_envs import CartPole, make_vec, with_seeds
from arrayferry_gym._bridged import Bridged
from arrayferry_gym.vector import JaxToTorch
envs = CartPole().make_vec(3, xp="jax", autoreset_mode="NextStepTold", max_episode_steps=1)
envs = JaxToTorch(envs, stack_final=True)
envs.reset(seed=1)
observation, *_, infos = envs.step(envs.action_space.sample())
assert infos["_final_obs"].all() and (infos["final_obs"] == observation).all()

new = {"autoreset_mode": "NextStepTold", "max_episode_steps": 1}
def ends(envs):
    envs.reset(seed=1)
    observation, *_, infos = envs.step(envs.action_space.sample())
    assert infos["_final_obs"].all() and (infos["final_obs"] == observation).all()
    _, reward, *flags, infos = envs.step(envs.action_space.sample())
    assert not any(x.any() for x in (reward, *flags, infos["_final_obs"]))
ends(make_vec("arrayferry/CartPole-v0", 3, **new))
with tempfile.TemporaryDirectory() as folder:
    CartPole().make_vec(3, translate=True, **new).save(path := os.path.join(folder, "x.afp"))
    ends(make_vec(path, 3, xp="torch", **new))
    with pytest.raises(af.OptionError, match="autoreset_mode='SameStep', but .* saved with .*'NextStepTold'"):
        make_vec(path, 3, autoreset_mode="SameStep")
with pytest.raises(af.OptionError, match=r"NextStepTold.* is not valid for batches of Gymnasium. Pass one of AutoresetMode.NEXT"):
    make_vec("gymnasium/CartPole-v1", 3, **new)

with pytest.raises(af.OptionError, match="resets in the step after an episode"):
    Bridged(CartPole().make_vec(3, **new), "Bridge", "a trainer", "numpy")
envs = with_seeds(CartPole(), range(9)).make_vec(3, autoreset_mode="SameStep", max_episode_steps=1)
bridge = Bridged(envs, "Bridge", "a trainer", "numpy", infos=True)
bridge.reset(seed=1)
assert [[*infos] for infos in bridge.step(envs.action_space.sample())[-1]] == [["seed"]] * 3
assert "final_seed" in bridge.given and [[*infos] for infos in bridge.firsts] == [["seed"]] * 3
"""

KEPT = """
import gymnasium as gym, inspect, pytest, torch
from arrayferry_gym import NumpyToTorch, pettingzoo as games, vector
env, given = gym.make("CartPole-v1"), []
env.reset = lambda seed=None, options=None: given.append(options["x"]) or (torch.ones(4), {})
NumpyToTorch(env).reset(options={"x": torch.ones(2)})
NumpyToTorch(env, convert_options=False).reset(options={"x": torch.ones(2)})
assert [type(x).__name__ for x in given] == ["ndarray", "Tensor"]
for made in (vector.ArrayConversion, games.ParallelConversion):
    assert "convert_options" in inspect.signature(made).parameters
with pytest.raises(af.OptionError, match="convert_options='no' is not valid. Pass True"):
    vector.JaxToNumpy(gym.make_vec("CartPole-v1", 2), convert_options="no")
"""

ENVS, GYM = "tests/gym_adapters/arrayferry_envs/test_", "tests/gym_adapters/arrayferry_gym"
OF_MODES = "episodes", "engine", "video", "evaluate", "functional", "env_options", "kernels"
ADDED = {
    "option": (3, NEW, "options or option or like or pickle or explain or repr or kept", 50,
               "tests/core/arrayferry", "tests/core/arrayferry_functions"),
    "mode": (4, TOLD, "TOLD and not processes", 40, *(f"{ENVS}{name}.py" for name in OF_MODES),
             f"{GYM}/test_kernels.py", "tests/gym_adapters/arrayferry_audit/test_check_vector_env.py"),
    "adapter_option": (3, KEPT, "option or overloads or unknown or spec or record or pickle or repr", 40,
                       GYM, f"{ENVS}compatibility.py", "tests/types"),
}  # fmt: skip
"""An option of the core, an autoreset mode and an option of the adapters: in how many files they may be, a script that uses
them, and the tests that pass."""


@pytest.mark.long
@pytest.mark.parametrize("name", ADDED)
def test_what_is_added_is_in_few_files(tmp_path, name):
    """A patch adds it to a copy, and all tests of such things pass."""
    most, script, names, least, *tests = ADDED[name]
    patch = Path(__file__).with_name(f"{name}.patch").read_text()
    assert 0 < len(re.findall(r"^\+\+\+ b/(?!tests/)", patch, re.MULTILINE)) <= most
    tops = ("core", "plugins", "gym_adapters", "tests", "docs", "tools")
    for top in tops:
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    for each in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / each, tmp_path)
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    places = [*(str(tmp_path / top) for top in tops[:3]), *sys.path]
    run = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(places)}, "cwd": tmp_path}
    copied = f"import arrayferry as af; assert af.__file__.startswith({str(tmp_path)!r})\n"
    subprocess.run([sys.executable, "-c", copied + script], check=True, **run)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **run)
    assert done.returncode == 0, done.stdout[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > least


@pytest.mark.parametrize("package", ["arrayferry_envs", "arrayferry_audit"])
def test_packages_without_gymnasium_name_the_install_command(package, run_python):
    out = run_python(
        "import sys; sys.modules['gymnasium'] = None\n"
        f"try:\n    import {package}\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    assert "run: pip install '.[gym]'" in out
