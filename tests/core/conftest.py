"""Plugins that are installed for the time of a test."""

import sys
import warnings

import pytest
from distributions import write_distribution

import arrayferry as af


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write distributions with plugins, by their names and code, and return a registry with them and the messages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def make(**codes):
        for name, code in codes.items():
            write_distribution(tmp_path, name, code)
        registry = af.Registry()
        with warnings.catch_warnings(record=True, action="always") as caught:
            _ = registry.catalog
        return registry, [str(each.message) for each in caught]

    yield make
    for name in set(sys.modules) - before:
        if name.endswith("_plugin"):
            del sys.modules[name]
