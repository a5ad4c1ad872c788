"""The examples train agents, and their plugins load large libraries, which takes long. The environments are quick."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
QUICK = FOLDER / "arrayferry-classic"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and not item.path.is_relative_to(QUICK):
            item.add_marker(pytest.mark.long)
