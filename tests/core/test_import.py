"""Imports: arrayferry alone, no cycles, and down the wings only."""

import ast
import graphlib
import re
from pathlib import Path

import pytest
from cases import quick_if

import arrayferry as af

ROOT = Path(__file__).parents[2]
LIBRARIES = (
    "numpy",
    "torch",
    "jax",
    "jaxlib",
    "dask",
    "cupy",
    "warp",
    "gymnasium",
    "array_api_compat",
)


LOADED = {
    "arrayferry": ("import arrayferry", (*LIBRARIES, "pluggy")),
    "a trace": ("import arrayferry as af\nwith af.trace(): pass", LIBRARIES),
    "all plugins": ("import arrayferry as af\nassert len(af.backends()) > 5\n"
                    "assert {b.installed for b in af.backends().values()} <= {True, False}", LIBRARIES),
    "a conversion": (
        "import numpy as np, arrayferry as af\naf.convert({'x': np.ones(2)}, 'torch')",
        ("jax", "dask", "cupy", "gymnasium"),
    ),
    "a conversion of what is no array": (
        "import scipy, numpy as np, arrayferry as af\naf.convert([np.ones(2), object()], 'numpy')",
        ("scipy.sparse",),
    ),
    "lazy arrays": (
        "import arrayferry as af, dask.array as da\naf.convert([da.ones(2), object()], 'numpy', unknown='convert')",
        ("dask.dataframe",),
    ),
    "what the command needs": ("import arrayferry as af\naf.backends()", ("argparse", "arrayferry_cli")),
    "the public names": ("from arrayferry import *\nassert convert and 'testing' not in globals()", ("pytest",)),
}  # fmt: skip
"""Scripts, and modules that they do not load."""


@pytest.mark.parametrize("what", quick_if(LOADED, {"arrayferry", "a conversion"}.__contains__))
def test_no_more_is_loaded_than_needed(run_python, what):
    script, modules = LOADED[what]
    out = run_python(f"import sys\n{script}\nprint([m for m in {modules!r} if m in sys.modules])")
    assert out.strip() == "[]"


def test_importing_the_adapters_only_registers_the_reference_environments(run_python):
    out = run_python(
        "import sys, arrayferry_gym\n"
        "print(sorted(m for m in sys.modules if m.startswith('arrayferry')))\n"
        "from arrayferry_gym import *\n"
        "arrayferry_gym.vector.NumpyToTorch, arrayferry_envs.CartPole"
    )
    assert out.strip() == "['arrayferry_gym', 'arrayferry_envs._ids']"


@pytest.mark.parametrize("root", ["core/arrayferry", "plugins/arrayferry_plugins"])
def test_no_module_imports_a_library_at_its_top(root):
    for path in (ROOT / root).rglob("*.py"):
        if path.name == "testing.py" or path.parent.name == "_contract":  # imported by tests only
            continue
        if path.parts[-2:] == ("torch_", "data.py"):  # imported by users of PyTorch only
            continue
        parts = path.relative_to(ROOT / root).parent.parts
        names = imported_by(ast.parse(path.read_text()).body, (root.partition("/")[2], *parts))
        tops = {name.partition(".")[0] for name in names}
        assert not tops & set(LIBRARIES), f"{path.name} imports {tops}"
        if root.startswith("core"):
            assert not tops & {"arrayferry_plugins", "arrayferry_gym"}, path.name


MAP = (ROOT / "docs/internals.md").read_text()


def wings_of(name):
    """Return the names at the left of the map that has a name, the lowest first."""
    (text,) = [each for each in re.findall(r"```\n(.*?)```", MAP, re.DOTALL) if name in each]
    lines = re.findall(r"^\w+(?:  \w+)*(?=   |$)", text, re.MULTILINE)
    return [wing for line in lines[::-1] for wing in line.split()[::-1]]


WINGS = {
    "core/arrayferry": wings_of("_conversion"),
    "gym_adapters/arrayferry_gym": ["_ids", *wings_of("_adapters"), "_bridged"],
    "gym_adapters/arrayferry_gym/functional": (
        "_contract",
        "_evaluation",
        "_simulators",
        "_served",
        "_around",
        "_host",
        "_compiled",
        "_policies",
        "_progress",
        "_drawing",
        "_others",
        "classic",
        "tabular",
        "registration",
    ),
    "gym_adapters/arrayferry_gym/distributed": (
        "_errors",
        "_trajectories",
        "_workers",
        "_dask",
        "_collector",
    ),
}
"""Each wing imports only those before it. All other modules, the public face, may import any."""


PACKAGES = (
    "core/arrayferry",
    "plugins/arrayferry_plugins",
    "gym_adapters/arrayferry_gym",
    "cli/arrayferry_cli",
)


def imported_by(nodes, package):
    """Return the modules that statements import, by their full names."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def imports_of(package):
    """Map each module of a package to the modules of all packages that it imports."""
    root = ROOT / package
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found[name] = {
            module
            for module in imported_by(ast.walk(ast.parse(path.read_text())), parts[:-1])
            if module.partition(".")[0] in {Path(other).name for other in PACKAGES}
        }
    return found


def imports_within(package):
    """Map each module of a package to the modules of the same package that it imports."""
    imports = imports_of(package)
    return {module: others & imports.keys() for module, others in imports.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circular_imports(package):
    imports = imports_within(package)
    assert len(imports) > 10
    imports[Path(package).name] = set()  # it imports its names lazily
    graphlib.TopologicalSorter(imports).prepare()  # its error names the modules of a circle


@pytest.mark.parametrize("package", [*PACKAGES, "examples"])
def test_nobody_imports_the_private_modules_of_another_package(package):
    own = Path(package).name
    private = {
        (module, other)
        for module, others in imports_of(package).items()
        for other in others
        if other.partition(".")[0] != own
        and any(name[0] == "_" and name[:2] != "__" for name in other.split("."))
    }
    assert sorted(private) == []


@pytest.mark.parametrize("folder", WINGS)
def test_modules_import_only_from_lower_wings(folder):
    wings, package = WINGS[folder], "/".join(folder.split("/")[:2])
    name = folder.partition("/")[2].replace("/", ".")

    def level(module):
        wing = module.removeprefix(f"{name}.").partition(".")[0]
        return wings.index(wing) if wing in wings else len(wings)

    imports = imports_within(package)
    edges = [
        (module, other)
        for module, others in imports.items()
        for other in others
        if module.startswith(f"{name}.") and other.startswith(f"{name}.")
    ]
    assert len(edges) > 20
    assert {f"{name}.{wing}" for wing in wings} <= imports.keys()
    assert [(a, b) for a, b in edges if level(b) > level(a)] == []


def test_every_public_name_exists():
    for name in af.__all__:
        assert getattr(af, name) is not None
    assert set(dir(af)) == {
        *af.__all__,
        "adapting",
        "inspection",
        "testing",
        "typing",
        "__version__",
    }
    assert af.testing.BackendContract is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        af.nothing  # noqa: B018
