"""A pytest plugin that puts this project's wrappers in the place of Gymnasium's own, for Gymnasium's own tests."""

from __future__ import annotations

import importlib.util
import re

import pytest

ELSEWHERE = r"CarRacing|test_resize|test_normalize_obs_with_vector"
"""Tests that need Box2D."""


def pytest_configure() -> None:
    """Replace the classes wherever tests import them from."""
    import gymnasium.wrappers
    import gymnasium.wrappers.vector

    from arrayferry_gym import wrappers

    for package, ours in (
        (gymnasium.wrappers, wrappers),
        (gymnasium.wrappers.vector, wrappers.vector),
    ):
        for name in ours.__all__:
            if isinstance(getattr(package, name, None), type):
                setattr(package, name, getattr(ours, name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that cannot run here."""
    if importlib.util.find_spec("Box2D") is None:
        for item in items:
            if re.search(ELSEWHERE, item.nodeid):
                item.add_marker(pytest.mark.skip(reason="needs Box2D"))
