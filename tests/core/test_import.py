"""What importing costs: nothing but this package itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import arrayferry as af

ROOT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "torch", "jax", "jaxlib", "dask", "cupy", "gymnasium", "array_api_compat")


def test_importing_loads_no_library(run_python):
    out = run_python(
        f"import sys, arrayferry; print([m for m in {(*LIBRARIES, 'pluggy')!r} if m in sys.modules])"
    )
    assert out.strip() == "[]"


def test_loading_all_plugins_loads_no_library(run_python):
    out = run_python(
        "import sys, arrayferry as af\n"
        "found = dict(af.backends())\n"
        "assert {'numpy', 'torch', 'jax', 'cupy', 'dask'} <= set(found), found\n"
        "assert all(b.installed in (True, False) for b in found.values())\n"
        f"print([m for m in {LIBRARIES!r} if m in sys.modules])"
    )
    assert out.strip() == "[]"


def test_a_conversion_loads_only_what_it_needs(run_python):
    out = run_python(
        "import sys, numpy as np, arrayferry as af\n"
        "af.convert({'x': np.ones(2)}, 'torch')\n"
        "print([m for m in ('jax', 'dask', 'cupy', 'gymnasium') if m in sys.modules])"
    )
    assert out.strip() == "[]"


@pytest.mark.parametrize("root", ["core/arrayferry", "plugins/arrayferry_plugins"])
def test_no_module_imports_a_library_at_its_top(root):
    for path in (ROOT / root).rglob("*.py"):
        if path.name == "testing.py":  # nobody imports it but tests
            continue
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            tops = {name.partition(".")[0] for name in names}
            assert not tops & set(LIBRARIES), f"{path.name} imports {tops}"
            if root.startswith("core"):
                assert not tops & {"arrayferry_plugins", "arrayferry_gym"}, path.name


def test_every_public_name_is_there():
    for name in af.__all__:
        assert getattr(af, name) is not None
    assert set(af.__all__) <= set(dir(af))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        af.nothing  # noqa: B018
