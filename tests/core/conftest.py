"""Plugins that are installed for the time of a test."""

import sys

import pytest
from distributions import load


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write distributions with plugins, by their names and code, and return a registry with them and the messages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield lambda **codes: load(tmp_path, codes)
    for name in set(sys.modules) - before:
        if name.endswith("_plugin"):
            del sys.modules[name]
