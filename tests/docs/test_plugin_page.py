"""The plugin of docs/how-to/plugin.md is complete: the contract kit accepts it."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/plugin.md"
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


@pytest.fixture
def python(tmp_path):
    """Write the files as pip would install them, and return a function that runs Python there."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    name = project["name"].replace("-", "_")
    info = tmp_path / f"{name}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [f"{key} = {value}" for key, value in project["entry-points"]["arrayferry"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[arrayferry]", *lines]))
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "ARRAYFERRY_PLUGINS": "numpy,torch,mylib"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path, env=environment, text=True, capture_output=True,
        )  # fmt: skip

    return run


@pytest.mark.long
def test_the_kit_accepts_the_plugin(python):
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mylib.py")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30
    assert "failed" not in done.stdout


@pytest.mark.long
def test_the_command_accepts_the_plugin(python):
    done = python("-m", "arrayferry", "check", "mylib")
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed in", done.stdout), done.stdout


@pytest.mark.needs("torch")
def test_it_converts(python):
    code = "import arrayferry as af, torch; x = af.convert(torch.ones(2), 'mylib'); print(type(x), af.convert(x, 'torch'))"
    assert python("-c", code).stdout == "<class 'mylib.Array'> tensor([1., 1.])\n"
