"""The examples train agents, which takes long."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "examples":
            item.add_marker(pytest.mark.long)
