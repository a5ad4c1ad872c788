"""The reference has every public name, and the pictures show what the code says."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = [
    name
    for page in sorted((ROOT / "docs/reference").glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]
# Modules that import a package which is not installed here.
ABSENT = {"arrayferry_gym.rsl_rl": "rsl_rl.py", "arrayferry_gym.tianshou": "tianshou.py"}
MODULES = [
    "arrayferry",
    "arrayferry.adapting",
    "arrayferry.inspection",
    "arrayferry.testing",
    "arrayferry.typing",
    "arrayferry_gym",
    "arrayferry_gym.distributed",
    "arrayferry_gym.functional",
    "arrayferry_gym.pettingzoo",
    "arrayferry_gym.rsl_rl",
    "arrayferry_gym.sb3",
    "arrayferry_gym.testing",
    "arrayferry_gym.tianshou",
    "arrayferry_gym.torchrl",
    "arrayferry_gym.vector",
    "arrayferry_gym.wrappers",
    "arrayferry_gym.wrappers.kernels",
    "arrayferry_gym.wrappers.vector",
]


def public(module: str) -> list[str]:
    """Return the public names of a module, but other modules, and what is another project's."""
    if module in ABSENT:
        (text,) = [path.read_text() for path in (ROOT / "gym_adapters").rglob(ABSENT[module])]
        return [
            f"{module}.{name}"
            for name in ast.literal_eval(text.partition("__all__ = ")[2].partition("\n")[0])
        ]
    names = importlib.import_module(module).__all__
    return [f"{module}.{name}" for name in names if not _is_elsewhere(module, name)]


def _is_elsewhere(module: str, name: str) -> bool:
    value = getattr(importlib.import_module(module), name)
    return inspect.ismodule(value) or str(getattr(value, "__module__", "")).startswith("gymnasium")


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    assert [name for name in public(module) if name not in SHOWN] == []


def test_each_public_name_is_in_the_changelog():
    """What 0.1.0 brings is summed up there. What comes later is named."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    names = {name for module in MODULES for name in public(module)}
    summed_up = set((ROOT / "tests/docs/summed_up.txt").read_text().split())
    missing = {
        name
        for name in names - summed_up
        if not re.search(rf"\b{name.split('.')[-1]}\b", changelog)
    }
    assert missing == set(), "name them in CHANGELOG.md"
    assert summed_up - names == set(), "these are gone: take them out of summed_up.txt"


def test_nothing_is_shown_twice():
    assert sorted(set(SHOWN)) == sorted(SHOWN)


def test_pictures_are_those_of_the_code():
    drawn = runpy.run_path(str(ROOT / "tools/pictures.py"))["PICTURES"]
    for name, draw in drawn.items():
        assert (ROOT / "docs/assets" / name).read_text() == draw(), "run `python tools/pictures.py`"
