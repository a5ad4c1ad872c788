"""docs/reference/command.md shows what the command prints."""

import json
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[3] / "docs/reference/command.md").read_text()
SHOWN = dict(re.findall(r"```\n\$ arrayferry (.*?)\n(.*?)```", TEXT, re.DOTALL))


def test_every_command_is_shown():
    shown = {command.split()[0] for command in SHOWN}
    assert shown == {"--help", "doctor", "routes", "check", "check-env", "new-plugin"}


@pytest.mark.parametrize("command", ["--help", "new-plugin mylib --package mylib"])
def test_output(run, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    assert run(*command.split())[1].split() == SHOWN[command].split()  # lines break elsewhere


@pytest.mark.long
@pytest.mark.needs("torch")
def test_check_env(run, monkeypatch, tmp_path):
    (code,) = re.findall(r"```python\n(import numpy.*?)```", TEXT, re.DOTALL)
    (tmp_path / "hover.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert run("check-env", "hover.py:Hover")[1] == SHOWN["check-env hover.py:Hover"]


@pytest.mark.long
def test_routes(run, only):
    only("numpy", "torch", "dask")
    assert run("routes", "dask", "torch")[1] == SHOWN["routes dask torch"]
    shown = [line.split() for line in SHOWN["routes"].partition("\n\n")[0].splitlines()]
    header, cells = shown[0][3:], {row[0]: row[1:] for row in shown[1:]}
    routes = json.loads(run("routes", "--json")[1])["routes"]
    words = {"share": "shared", "copy": "copied", "compute": "computed"}
    for route in routes:
        costs = [step["cost"] for step in route["steps"]]
        word = words[max(costs, key=list(words).index)] if costs else "itself"
        assert cells[route["source"]][header.index(route["target"])] == word


@pytest.mark.long
def test_doctor(run, only):
    only("numpy")
    _, out, _ = run("doctor")
    shown = SHOWN["doctor"].splitlines()
    begins = [
        [re.sub(r"[\d.]+\S*", "", line).split()[:2] for line in lines[:2]]
        for lines in (out.splitlines(), shown)
    ]
    assert begins[0] == begins[1]
    for heading in ("Libraries", "Plugins", "Nothing is broken."):
        assert heading in out.splitlines()
        assert heading in shown
    _, out, _ = run("doctor", "--json")
    found = json.loads(out)
    documented = set(re.findall(r"`(\w+)`", TEXT.partition("## routes")[0]))
    keys = {*found, *found["libraries"][0], *found["plugins"][0]}
    assert keys - documented == set()
