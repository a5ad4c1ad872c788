"""The kernel, installed without any other package of ours, with a stranger's plugin."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = runpy.run_path(str(Path(__file__).parents[2] / "tools/alone.py"))
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "stranger"
version = "1.0"

[project.entry-points.arrayferry]
stranger = "stranger"
"""
PLUGIN = """
import numpy as np, arrayferry as af

class Box:
    def __init__(self, values):
        self.values = values

class BoxBackend(af.Backend):
    name = package = "stranger"
    array_types = ("stranger.Box",)
    def to_numpy(self, x):
        return x.values.copy()
    def from_numpy(self, x, device=None):
        return Box(x.copy())

class OwnNumpy(af.Backend):
    name = package = "numpy"
    array_types = ("numpy.ndarray",)
    to_numpy_shares = from_numpy_shares = True
    def to_numpy(self, x):
        return x
    def from_numpy(self, x, device=None):
        return x

@af.hookimpl
def arrayferry_backends():
    return [BoxBackend(), OwnNumpy()]
"""
SCRIPT = """
import importlib.util, sys, warnings
warnings.simplefilter("error")
for name in sys.argv[1:]:
    assert importlib.util.find_spec(name) is None, name
import numpy as np, arrayferry as af
from stranger import Box
assert set(af.backends()) == {"stranger", "numpy"}
assert not {"agnostic", "stream", "testing"} & {*dir(af), *af.__all__}
for convert in (af.convert, lambda value, to: af.converter(to)(value)):
    for _ in range(4):
        boxes = convert({"a": [np.arange(3.0), "text"], "b": (1, np.ones(2))}, "stranger")
        assert type(boxes["a"][0]) is Box and boxes["a"][1] == "text" and boxes["b"][0] == 1
        again = convert(boxes, "numpy")
        assert again["a"][0].tolist() == [0, 1, 2] and again["b"][1].tolist() == [1, 1]
arrays, layout = af.flatten(boxes)
assert len(arrays) == 2 and "stranger" in str(af.route("numpy", "stranger"))
with af.trace() as trace:
    af.convert(boxes, "numpy")
assert trace.rows
"""


@pytest.mark.long
def test_the_kernel_works_with_a_strangers_plugin_alone(tmp_path):
    python = ALONE["installed"](tmp_path, ALONE["copied"](tmp_path, {"arrayferry"}))
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger/pyproject.toml").write_text(PROJECT)
    (tmp_path / "stranger/stranger.py").write_text(PLUGIN)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    options = "--no-build-isolation", "--target", tmp_path / "stranger/site"
    subprocess.check_call([*install, *options, tmp_path / "stranger"])
    missing = [name for name in ALONE["TOPS"] if name != "arrayferry"]
    environment = {"PYTHONPATH": str(tmp_path / "stranger/site"), "ARRAYFERRY_PLUGINS": "stranger"}
    subprocess.run([python, "-c", SCRIPT, *missing], env=environment, cwd=tmp_path, check=True)
