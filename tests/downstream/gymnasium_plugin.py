"""A pytest plugin that puts this project's adapters in the place of Gymnasium's own, for Gymnasium's own tests.

Where the two differ on purpose, the tests that show it are expected to fail, each with the reason. With
UNCHECKED=1 in the environment actions are not checked, so that these tests can show that nothing else differs.
"""

from __future__ import annotations

import importlib
import os
import re

import pytest

SINGLE = ("array_conversion", "jax_to_numpy", "jax_to_torch", "numpy_to_torch")

NOT_IN_THE_SPACE = (
    "its action has two elements, where the action space of its environment has one: "
    "an action is always checked for its shape"
)
BY_ITS_SOURCE = (
    "it looks for one call in the source of __init__; the arguments are recorded elsewhere"
)
UNCHECKED = os.environ.get("UNCHECKED") == "1"
DIFFERENCES = {
    r"test_record_constructor_args\.py::.*\[(ArrayConversion|JaxToNumpy|JaxToTorch|NumpyToTorch)\]": BY_ITS_SOURCE,
    r"wrappers/test_array_conversion\.py::test_array_conversion_wrapper": NOT_IN_THE_SPACE,
    r"wrappers/test_jax_to_numpy\.py::test_jax_to_numpy_wrapper": NOT_IN_THE_SPACE,
    r"wrappers/test_jax_to_torch\.py::test_jax_to_torch_wrapper": NOT_IN_THE_SPACE,
    r"wrappers/test_numpy_to_torch\.py::test_numpy_to_torch$": NOT_IN_THE_SPACE,
    r"wrappers/vector/test_array_conversion\.py::test_": NOT_IN_THE_SPACE,
}


def pytest_configure() -> None:
    """Replace classes and functions wherever tests import them from."""
    import gymnasium.wrappers
    import gymnasium.wrappers.vector

    import arrayferry_gym

    if UNCHECKED:
        from arrayferry_gym import _actions

        _actions.Fitter.fit = lambda self, value, space, path="": value  # type: ignore[method-assign]
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
            if re.search(pattern, item.nodeid) and not (UNCHECKED and reason is NOT_IN_THE_SPACE):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
