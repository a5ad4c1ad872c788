"""The tests that packages such as `arrayferry_functions` provide for the objects that their hooks return."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from arrayferry.extending import announced_hooks, describe_error


def layer_tests() -> list[type]:
    """Return the classes of tests for all hooks that installed packages announce.

    If a package cannot be imported, a skipped test replaces its tests.
    """
    test_classes: dict[type, None] = {}
    for hook, point in announced_hooks().items():
        try:
            class_path = getattr(point.load(), "contract", "")
            test_classes |= {resolve_name(class_path): None} if class_path else {}
        except Exception as error:
            test_classes[
                _skipped(hook, f"{point.value} cannot be imported: {describe_error(error)}")
            ] = None
    return list(test_classes)


def _skipped(hook: str, why: str) -> type:
    def test(self: Any) -> None:
        pytest.skip(why)

    return type("Skipped", (), {f"test_{hook}": test})


if TYPE_CHECKING:

    class LayerTests:
        """The tests that installed packages provide for the objects that their hooks return."""

else:
    LayerTests = type("LayerTests", tuple(layer_tests()), {})
