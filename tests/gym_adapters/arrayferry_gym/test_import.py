"""Imports: little is loaded at first, and names that are elsewhere are told."""

import re

import pytest

import arrayferry_gym
from arrayferry_gym import wrappers


def test_importing_the_adapters_loads_none_of_them(run_python):
    out = run_python(
        "import sys, arrayferry_gym\n"
        "print(sorted(m for m in sys.modules if m.startswith('arrayferry')))\n"
        "from arrayferry_gym import *\n"
        "arrayferry_gym.vector.NumpyToTorch, ArrayConversion"
    )
    assert out.strip() == "['arrayferry_gym']"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("functional", "from arrayferry_envs import ..."),
        ("testing", "from arrayferry_audit import ..."),
        ("distributed", "from arrayferry_cluster import ..."),
        ("evaluate", "from arrayferry_envs import evaluate"),
        ("record", "from arrayferry_envs import record"),
    ],
)
def test_what_is_in_another_package_is_told(name, line):
    with pytest.raises(ImportError, match=re.escape(line)):
        getattr(arrayferry_gym, name)
    with pytest.raises(ImportError, match=re.escape(line)):
        exec(f"from arrayferry_gym import {name}")
    if name not in ("evaluate", "record"):
        with pytest.raises(ImportError, match=re.escape(line)):
            exec(f"from arrayferry_gym.{name} import anything")
    assert name not in dir(arrayferry_gym)
    assert not hasattr(wrappers, name)
