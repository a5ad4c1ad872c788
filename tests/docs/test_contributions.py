"""What a change needs besides its code: a row of a page for each wrapper and option."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import arrayferry as af
import arrayferry_gym

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["arrayferry_gym.wrappers", "arrayferry_gym.wrappers.vector"])
def test_each_wrapper_is_on_the_page_of_wrappers(module):
    page = (ROOT / "docs/how-to/wrappers.md").read_text()
    wrappers = [
        name
        for name, value in vars(importlib.import_module(module)).items()
        if name in importlib.import_module(module).__all__ and inspect.isclass(value)
    ]
    assert [name for name in wrappers if name not in page] == []


@pytest.mark.parametrize(
    ("function", "page", "row"),
    [
        (af.converter, "docs/reference/convert.md", r"\n`{}`\n:"),
        (arrayferry_gym.ArrayConversion, "docs/how-to/gymnasium-wrappers.md", r"\b{}\b"),
        (arrayferry_gym.vector.ArrayConversion, "docs/how-to/gymnasium-wrappers.md", r"\b{}\b"),
    ],
)
def test_each_option_has_a_row(function, page, row):
    text = (ROOT / page).read_text()
    options = [name for name in inspect.signature(function).parameters if name != "others"]
    assert [name for name in options if not re.search(row.format(name), text)] == []
