"""A pytest plugin that puts this project's adapters in the place of Gymnasium's own, for Gymnasium's own tests.

Where the two differ on purpose, the tests that show it are expected to fail, each with the reason.
"""

from __future__ import annotations

import importlib
import re

import pytest

SINGLE = ("array_conversion", "jax_to_numpy", "jax_to_torch", "numpy_to_torch")

BY_ITS_SOURCE = (
    "it looks for one call in the source of __init__; the arguments are recorded elsewhere"
)
DIFFERENCES = {
    r"test_record_constructor_args\.py::.*\[(ArrayConversion|JaxToNumpy|JaxToTorch|NumpyToTorch)\]": BY_ITS_SOURCE,
}


def pytest_configure() -> None:
    """Replace classes and functions wherever tests import them from."""
    import gymnasium.wrappers
    import gymnasium.wrappers.vector

    import arrayferry_gym

    for package, ours in (
        (gymnasium.wrappers, arrayferry_gym),
        (gymnasium.wrappers.vector, arrayferry_gym.vector),
    ):
        modules = [package]
        for name in SINGLE:
            modules.append(importlib.import_module(f"{package.__name__}.{name}"))
        for module in modules:
            for (
                name
            ) in ours.__all__:  # `array_conversion` is a module in the package, a function in that
                if callable(getattr(module, name, None)):
                    setattr(module, name, getattr(ours, name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the differences."""
    for item in items:
        for pattern, reason in DIFFERENCES.items():
            if re.search(pattern, item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
