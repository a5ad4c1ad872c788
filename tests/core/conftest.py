"""Modules and plugins that are there for the time of a test."""

import sys

import numpy as np
import pytest
from distributions import load

import arrayferry as af


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for modules that can be imported in this test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def install(folder):
    """Write distributions with plugins, by their names and code, and return a registry with them and the messages."""
    return lambda **codes: load(folder, codes)


def learnt(to, **options):
    """Return a conversion that has seen values of several kinds, and is compiled for them."""
    conversion, x = af.converter(to, **options), np.arange(3, dtype=np.float32)
    for _ in range(5):
        for value in (x, [x], [x, x], {"a": x, "b": {"c": x}}):
            conversion(value)
    assert "def convert_ndarray_to_" in conversion.explain()
    return conversion


@pytest.fixture(params=[af.converter, learnt])
def make(request):
    return request.param
