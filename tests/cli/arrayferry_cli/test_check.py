"""`arrayferry check`: pytest with the contract kit, on installed plugins."""

import importlib.util
import json

import pytest
from cases import quick_if
from distributions import plugin, write_distribution

CONVERTERS = """
import arrayferry as af

class Lossy(af.Converter):
    source, target = "numpy", "torch"
    def convert(self, x, device=None, copy=None):
        import torch
        return torch.from_numpy(x.round(-1))

def arrayferry_converters():
    return [Lossy()]
"""
CONTAINER = """
import arrayferry as af

class Box(af.Container):
    types = ("boxes.Box",)
    def children(self, value):
        return [value]
    def rebuild(self, value, children):
        return children[0]

def arrayferry_containers():
    return [Box()]
"""


def check(run, *arguments):
    """Return the outcomes of a backend, and its tests by name."""
    status, out, _ = run("check", *arguments, "--json")
    found = json.loads(out)
    assert status == (0 if found["ok"] else 1)
    (checked,) = found["checks"]
    return checked, {test["name"]: test for test in checked["tests"]}


@pytest.mark.parametrize("name", quick_if(["sparse", "mlx", "tensorflow"], "mlx".__eq__))
def test_the_example_plugins_pass(run, only, name):
    only("numpy", name)
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    checked, tests = check(run, f"arrayferry_{name}")
    assert checked["backend"] == name
    assert "failed" not in {test["outcome"] for test in tests.values()}
    assert len(tests) > 30


@pytest.mark.long
def test_a_plugin_that_passes(run, toy):
    toy()
    _, out, _ = run("check", "arrayferry_toy", status=0)
    assert " passed" in out
    assert out.endswith("Arrays of toy were made by from_numpy() of the plugin.\n")
    checked, tests = check(run, "toy")
    assert list(checked["made_by"]) == ["from_numpy() of the plugin"]
    assert tests["test_addresses"] == {
        "name": "test_addresses",
        "checks": "`address` returns the memory address of the first element.",
        "outcome": "passed",
        "message": "",
    }


def test_a_plugin_that_fails(run, toy):
    """The exit status is that of pytest, which shows the messages of the kit."""
    hidden = ("self.values = values", "self._values = values"), ("x.values", "x._values")
    traced = "def is_traced(self, x):\n        return True\n\n    def copy"
    toy(("def copy", traced), ("__setitem__", "set"), *hidden)
    _, out, _ = run("check", "toy", status=1)
    assert "FAILED test_toy.py::TestBackend::test_answers" in out
    checked, tests = check(run, "toy")
    assert checked["error"] is None
    assert tests["test_answers"]["outcome"] == "failed"
    assert "is_traced" in tests["test_answers"]["message"]
    assert tests["test_memory_is_as_stated"]["outcome"] == "skipped"
    assert "arrays are written to" in tests["test_memory_is_as_stated"]["message"]


END = "if x.shape == (5,):\n            END\n        return Array(x)"


WAITS = "import threading; threading.Event().wait()"
STOPPING = [
    ("import os; os.abort()", (), "testing toy failed: it crashed with SIGABRT"),
    (WAITS, ("--timeout", "20"), "testing toy took longer than 20 seconds"),
]


@pytest.mark.long
@pytest.mark.parametrize(("code", "options", "words"), STOPPING)
def test_a_plugin_that_ends_or_stops_pytest(run, toy, code, options, words):
    toy(("return Array(x)", END.replace("END", code)))
    _, out, err = run("check", "toy", *options, status=1)
    assert f"Error: {words}.\n" in out
    assert "toy_plugin.py" in err  # where it was
    checked, tests = check(run, "toy", *options)
    assert (checked["error"], tests) == (words, {})


@pytest.mark.long
def test_a_plugin_with_converters_alone(run, installed):
    write_distribution(installed, "lossy", CONVERTERS)
    checked, tests = check(run, "arrayferry-lossy")
    assert checked["backend"] == "numpy"
    assert [(name[:22], test["outcome"]) for name, test in tests.items()] == [
        ("test_direct_converters", "failed"),
        ("test_types_of_containe", "passed"),
    ]
    assert "<Converter numpy -> torch>" in next(iter(tests.values()))["message"]


@pytest.mark.parametrize("name", ["Box", "Bax"])
def test_types_of_containers(run, only, installed, name):
    (installed / "boxes.py").write_text("class Box: pass")
    write_distribution(installed, "boxes", CONTAINER.replace("boxes.Box", f"boxes.{name}"))
    only("numpy", "boxes")
    checked, tests = check(run, "boxes")
    assert checked["backend"] == "Box"
    message = tests["test_types_of_containers"]["message"]
    assert ("<Container Box>.types names ['boxes.Bax']" in message) == (name == "Bax")
    assert "Only `types` of Box was checked." in run("check", "boxes")[1]


@pytest.mark.long
def test_what_cannot_be_tested(run, installed):
    write_distribution(installed, "broken", "import not_there")
    write_distribution(installed, "absent", plugin("absent", "not_there"))
    write_distribution(installed, "boxes", CONTAINER)
    _, _, err = run("check", "arrayferry.broken", status=1)
    assert "No module named 'not_there', at broken_plugin.py:1" in err
    assert "Fix broken_plugin, or update or uninstall arrayferry-broken." in err
    status, _, err = run("check", "absent")
    reason = "absent is not installed: there is no module 'not_there'"
    assert (status, err) == (1, f"Error: {reason}. Run: pip install absent\n")
    for name in ("h5py", "xarray"):
        _, _, err = run("check", name, status=2)
        assert err.startswith(f"Error: {name} has no backend, converter or container")
    _, _, err = run("check", "arrayferry-boxe", status=2)
    assert "Did you mean 'arrayferry-boxes'?" in err


@pytest.mark.long
def test_a_library_that_cannot_be_imported(run, only, installed):
    (installed / "old_library.py").write_text("raise ImportError('too old')")
    write_distribution(installed, "old", plugin("old", "old_library"))
    only("numpy", "old")
    status, out, _ = run("check", "old")
    assert status
    assert "old is installed, but importing old_library failed with ImportError: too old" in out


@pytest.mark.long
def test_a_folder_that_is_not_installed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("new-plugin", "mine", "--package", "not_there")[0] == 0
    _, _, err = run("check", "mine", status=2)
    assert "pip install -e arrayferry-mine." in err


def test_it_needs_pytest(run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pytest" else find(name)
    )
    status, out, err = run("check", "numpy")
    assert (status, out) == (1, "")
    assert "the tests need pytest" in err
    assert "run: pip install '.[cli]'" in err


@pytest.mark.long
def test_the_settings_of_the_user_do_not_count(run, toy, tmp_path, monkeypatch):
    toy()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise ValueError")
    monkeypatch.chdir(tmp_path)
    assert run("check", "toy")[0] == 0
