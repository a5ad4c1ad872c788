"""`arrayferry check`: the contract kit on installed plugins, whatever they do."""

from __future__ import annotations

import importlib.util
import json

import pytest
from distributions import plugin, write_distribution

from arrayferry_cli import _check
from arrayferry_cli._messages import load
from arrayferry_cli._reports import CheckReport
from arrayferry_cli._screen import Screen

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


def checks(run, *arguments):
    status, out, _ = run("check", *arguments, "--json")
    found = json.loads(out)
    assert status == (0 if found["ok"] else 1)
    return found["checks"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sparse", marks=pytest.mark.long),
        "mlx",
        pytest.param("tensorflow", marks=pytest.mark.long),
    ],
)
def test_the_example_plugins_pass(run, only, name):
    only("numpy", name)
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    (found,) = checks(run, f"arrayferry_{name}")
    assert found["backend"] == name
    assert {test["outcome"] for test in found["tests"]} == {"passed"}
    assert len(found["tests"]) > 30


def test_a_plugin_that_passes(run, toy):
    toy()
    status, out, _ = run("check", "arrayferry_toy")
    assert status == 0, out
    assert out.startswith("toy: ")
    assert "failed" not in out
    assert "arrays were made by from_numpy() of the plugin\n" in out


FAULTS = """
    def from_numpy(self, x, device=None):
        if x.shape == (5,):
            import os
            os.abort()
        return Array(x)

    def is_traced(self, x):
        return True

    def devices(self):
        raise RuntimeError("no devices")

    def copy"""


def test_a_plugin_that_fails(run, only, installed, capfd):
    only("numpy", "toy", "odd")
    write_distribution(installed, "toy", plugin("toy").replace("\n    def copy", FAULTS))
    (installed / "odd").mkdir()
    write_distribution(installed, "odd", "raise RuntimeError('odd')")
    (found,) = checks(run, "arrayferry-toy")
    tests = {test["name"]: test for test in found["tests"]}
    assert tests["test_arrays_are_not_traced"]["outcome"] == "failed"
    assert "Return False from is_traced(x)" in tests["test_arrays_are_not_traced"]["message"]
    assert tests["test_from_numpy"]["outcome"] == "crashed"
    assert "it crashed with SIGABRT" in tests["test_from_numpy"]["message"]
    assert tests["test_special_values_are_kept"]["outcome"] == "passed"
    report = {"schema": 1, "ok": False, "package": "toy", "checks": [found]}
    _check.show(load(CheckReport, report), Screen())
    out = capfd.readouterr().out
    assert (
        "unless x has no values yet, as inside a compiled function.\n"
        "    test_arrays_are_not_traced: An ordinary array is not traced.\n" in out
    )


def test_a_warning_of_a_test_is_shown(run, toy):
    toy(("    def from_numpy", "    to_numpy_share = True\n\n    def from_numpy"))
    status, out, _ = run("check", "toy")
    assert status == 0
    assert "test_array_types_exist: Toy has an attribute 'to_numpy_share'" in out


@pytest.mark.long
def test_arrays_that_cannot_be_written_to(run, toy):
    hidden = ("self.values = values", "self._values = values"), ("x.values", "x._values")
    toy(("__setitem__", "set"), *hidden)
    (found,) = checks(run, "toy")
    outcomes = {test["name"]: test for test in found["tests"]}
    assert outcomes["test_memory_is_as_stated"]["outcome"] == "skipped"
    assert "or set memory to 'immutable'" in outcomes["test_memory_is_as_stated"]["message"]


@pytest.mark.long
def test_a_plugin_with_converters_alone(run, installed):
    write_distribution(installed, "lossy", CONVERTERS)
    (found,) = checks(run, "arrayferry-lossy")
    (test,) = found["tests"]
    assert found["backend"] == "numpy"
    assert test["outcome"] == "failed"
    assert "<Converter numpy -> torch>" in test["message"]


@pytest.mark.long
def test_a_plugin_that_is_left_out(run, installed):
    write_distribution(installed, "broken", "import not_there")
    status, out, _ = run("check", "arrayferry.broken")
    assert status == 1
    assert "ModuleNotFoundError: No module named 'not_there'" in out
    assert "not_there', at broken_plugin.py:1" in out
    assert "Fix broken_plugin, or update or uninstall arrayferry-broken." in out


@pytest.mark.long
def test_a_library_that_is_not_installed(run, installed):
    write_distribution(installed, "absent", plugin("absent", "not_there"))
    status, out, _ = run("check", "absent")
    assert (status, out) == (
        1,
        "absent is not installed: there is no module 'not_there'. Run: pip install absent\n",
    )


@pytest.mark.long
def test_what_cannot_be_checked(run, installed):
    write_distribution(installed, "boxes", CONTAINER)
    for name in ("boxes", "h5py"):
        status, _, err = run("check", name)
        assert status == 2
        assert err.startswith(f"Error: {name} has no backend and no converter")
    status, _, err = run("check", "arrayferry-boxe")
    assert status == 2
    assert "Did you mean 'arrayferry-boxes'?" in err


UNFINISHED = (
    (
        "return Array(x)",
        "raise NotImplementedError('Write from_numpy.')",
        "raised NotImplementedError: Write from_numpy.",
    ),
    ('("toy_plugin.Array",)', '("toy_plugin.Grid",)', "Set array_types"),
    (
        "return x.values\n",
        "return x.values + 1\n",
        "to_numpy(), for an array of [[1, 0, 1], [0, 1, 0]]: 2.0 instead of 1.0",
    ),
)


@pytest.mark.long
@pytest.mark.parametrize(("line", "instead", "words"), UNFINISHED)
def test_a_plugin_that_is_not_finished(run, toy, line, instead, words):
    toy((line, instead))
    (found,) = checks(run, "toy")
    outcomes = [test["outcome"] for test in found["tests"]]
    messages = [test["message"] for test in found["tests"] if test["message"]]
    assert outcomes.count("not run") >= 30
    assert [message for message in messages if words not in message] == []
    status, out, _ = run("check", "toy")
    assert status == 1
    assert "tests were not run" in out
    assert len(out.splitlines()) < 15


@pytest.mark.long
def test_the_half_of_a_round_trip_that_narrows_is_told(run, toy):
    toy(
        ("self.values = values", "self.values, self.dtype = values, values.dtype"),
        ("return Array(x)", "return Array(x.astype(np.float32))"),
    )
    (found,) = checks(run, "toy")
    messages = [test["message"] for test in found["tests"] if test["outcome"] == "failed"]
    assert messages[0].startswith(
        "from_numpy(), for an array of dtype bool and shape (): dtype float32"
    )


@pytest.mark.long
def test_one_cause_is_told_once(run, toy):
    fails = "if 'int' in x.values.dtype.name:\n            raise TypeError('no integers')\n        return x.values\n"
    toy(("return x.values\n", fails))
    _, out, _ = run("check", "toy")
    assert "test_to_numpy: " in out
    assert 0 < out.count("raised TypeError: no integers") < 4


@pytest.mark.long
def test_a_plugin_that_crashes_at_once(run, toy):
    toy(("return Array(x)", "import os; os.abort()"))
    (found,) = checks(run, "toy")
    outcomes = {test["name"]: test["outcome"] for test in found["tests"]}
    assert outcomes["test_from_numpy"] == "crashed"
    assert outcomes["test_special_values_are_kept"] == "not run"


@pytest.mark.long
def test_a_folder_that_is_not_installed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("new-plugin", "mine", "--package", "not_there")[0] == 0
    status, _, err = run("check", "mine")
    assert status == 2
    assert "pip install -e arrayferry-mine." in err


@pytest.mark.long
def test_a_library_that_has_the_functions_of_numpy(run, toy):
    toy(("import numpy as np", "import numpy as np\nfrom numpy import array, asarray"))
    status, out, _ = run("check", "toy")
    assert status == 0, out
    assert "arrays were made by from_numpy() of the plugin" in out
