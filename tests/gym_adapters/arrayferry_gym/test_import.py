"""Imports: little is loaded at first, and names that are elsewhere are told."""

import pytest

import arrayferry_gym


def test_importing_the_adapters_loads_none_of_them(run_python):
    out = run_python(
        "import sys, arrayferry_gym\n"
        "print(sorted(m for m in sys.modules if m.startswith('arrayferry')))\n"
        "from arrayferry_gym import *\narrayferry_gym.vector.NumpyToTorch, ArrayConversion"
    )
    assert out.strip() == "['arrayferry_gym']"


MOVED = {
    "functional": "from arrayferry_envs import", "testing": "from arrayferry_audit import",
    "distributed": "from arrayferry_cluster import", "evaluate": "from arrayferry_envs import evaluate",
    "record": "from arrayferry_envs import record",
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_what_is_in_another_package_is_told(name):
    lines = [f"arrayferry_gym.{name}", f"from arrayferry_gym import {name}"]
    if name not in ("evaluate", "record"):
        lines += [f"from arrayferry_gym.{name} import anything", f"import arrayferry_gym.{name}"]
    for line in lines:
        with pytest.raises(ImportError, match=MOVED[name]):
            exec(line, {"arrayferry_gym": arrayferry_gym})
    assert name not in dir(arrayferry_gym)
