"""What the shell offers for arguments, and what is imported for that."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from distributions import write_distribution

from arrayferry.inspection import load_parts
from arrayferry_cli import _complete


@pytest.fixture
def offered(run, monkeypatch):
    """Complete a line in this process, and return what is offered."""

    def call(line):
        monkeypatch.setenv("_ARRAYFERRY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        _, out, err = run()
        assert err == ""
        return out.split()

    return call


@pytest.mark.needs("torch", "h5py")
def test_libraries_and_plugins_are_offered(offered, installed):
    write_distribution(installed, "toy", "raise SystemExit('it is imported')")
    routes, targets, check = (
        offered(f"arrayferry {words} ") for words in ("routes", "routes numpy", "check")
    )
    assert {"numpy", "torch", "jax", "h5py", "toy"} <= set(routes)
    assert {"numpy", "torch", "jax", "toy"} <= set(targets)
    assert {"numpy", "torch", "jax", "toy", "arrayferry-toy"} <= set(check)
    assert "h5py" not in targets + check
    assert "tensordict" not in routes + targets + check
    assert offered("arrayferry routes jax to") == ["torch", "toy"]


def test_libraries_that_are_not_installed_are_not_offered(offered, monkeypatch):
    find = _complete.importlib.util.find_spec
    monkeypatch.setattr(
        _complete.importlib.util, "find_spec", lambda name: None if name == "dask" else find(name)
    )
    assert "dask" not in offered("arrayferry routes ")


def test_what_each_built_in_plugin_brings_is_known():
    for point in entry_points(group=_complete.GROUP):
        if point.module.startswith(_complete.HOME):
            brings = load_parts(point)
            assert ("backends" not in brings) is (
                point.name in (*_complete.CONTAINERS, *_complete.SOURCES)
            )
            assert not (point.name in _complete.CONTAINERS and "sources" in brings)


def test_completion_imports_no_plugin_and_no_library(run_python):
    out = run_python(
        "import os, sys\n"
        "os.environ.update(_ARRAYFERRY_COMPLETE='complete_bash', COMP_CWORD='2')\n"
        "os.environ['COMP_WORDS'] = 'arrayferry check num'\n"
        "import arrayferry_cli\n"
        "try:\n    arrayferry_cli.main([])\n"
        "except SystemExit:\n"
        "    slow = ('arrayferry_plugins', 'arrayferry._public', 'arrayferry_cli._check', 'numpy')\n"
        "    print([name for name in slow if name in sys.modules])"
    )
    assert out == "numpy\n[]\n"
