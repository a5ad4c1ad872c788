"""Distributions with plugins, as pip would install them, in a folder for `sys.path`."""

import os
import subprocess
import sys
import types
import warnings

import arrayferry as af


def write_distribution(folder, name, code, distribution=None, points=""):
    """Write a distribution whose entry point `name` is the module `{name}_plugin`, or with other entry points."""
    (folder / f"{name}_plugin.py").write_text(code)
    points = points or f"[arrayferry]\n{name} = {name}_plugin\n"
    distribution = distribution or f"arrayferry-{name}"
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)


PLUGIN = """
import numpy as np
import arrayferry as af

class Array:
    def __init__(self, values):
        self.values = values

    def __setitem__(self, index, value):
        self.values[index] = value

class Toy(af.Backend):
    name, package, install, array_types = "NAME", "LIBRARY", "NAME", ("NAME_plugin.Array",)
    to_numpy_shares = from_numpy_shares = True

    def to_numpy(self, x):
        return x.values

    def from_numpy(self, x, device=None):
        return Array(x)

    def copy(self, x):
        return Array(x.values.copy())

def arrayferry_backends():
    return [Toy()]
"""


def plugin(name, library=None):
    """Return the code of a plugin, of a library that is in a module of its own or in the plugin's."""
    return PLUGIN.replace("NAME", name).replace("LIBRARY", library or f"{name}_plugin")


def run_pytest(folder, *options, places=()):
    """Run the tests of a folder in a process of its own, and return its exit status and its output."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, places), *sys.path])}
    env.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=300)
    return done.returncode, done.stdout


def hooks(**parts):
    """Return a plugin with a function for each hook, which is not installed."""
    return types.SimpleNamespace(
        **{f"arrayferry_{hook}": (lambda each=each: each) for hook, each in parts.items()}
    )


def load(folder, codes):
    """Write distributions to a folder of `sys.path`, by their names and code. Return a registry with them, and the messages."""
    for name, code in codes.items():
        write_distribution(folder, name, code)
    registry = af.Registry()
    with warnings.catch_warnings(record=True, action="always") as caught:
        _ = registry.catalog
    assert {each.category for each in caught} <= {af.PluginWarning}
    return registry, [str(each.message) for each in caught]


def pip_install(folder, target):
    """Install a distribution into a folder, without network, dependencies, or a change of this environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--upgrade", "--target"]
    done = subprocess.run(
        [*command, *options, target, folder], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
