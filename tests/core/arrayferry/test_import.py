"""Imports: no library before it is needed, and every public name."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from cases import quick_if

import arrayferry as af

ROOT = Path(__file__).parents[3]
ARRAYS = "numpy", "torch", "jax", "jaxlib", "dask", "cupy", "warp"
LIBRARIES = *ARRAYS, "gymnasium", "array_api_compat"


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


ROOTS = (
    "core/arrayferry",
    "core/arrayferry_functions",
    "core/arrayferry_streams",
    "core/arrayferry_translate",
)


@pytest.mark.parametrize("root", [*ROOTS, "plugins/arrayferry_plugins"])
def test_no_module_imports_a_library_at_its_top(root):
    folder = ROOT / root
    later = {folder / "_contract.py"}  # for tests
    if root.endswith("translate"):
        later |= {folder / f"{name}.py" for name in ("_trace", "_lowered", "_gradients", "_onnx")}
    for path in {*folder.rglob("*.py")} - later:
        tops = set(re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE))
        assert not tops & set(LIBRARIES), f"{path.name} imports {tops}"


def test_every_public_name_exists():
    for name in af.__all__:
        assert getattr(af, name) is not None
    modules = {"extending", "testing", "typing"}
    layers = {
        "Stream": "_streams",
        "agnostic": "_functions",
        "stream": "_streams",
        "testing": "_kit",
    }
    missing = {name for name, end in layers.items() if find_spec(f"arrayferry{end}") is None}
    assert {"convert", *layers} - missing <= {*af.__all__, *modules}
    assert set(dir(af)) == {*af.__all__, *modules - missing, "__version__"}
    assert not missing & set(dir(af))
    for name in missing:
        with pytest.raises(ModuleNotFoundError, match=f"arrayferry{layers[name]}"):
            getattr(af, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        af.nothing  # noqa: B018
