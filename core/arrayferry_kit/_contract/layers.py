"""The tests that layers bring for the parts of their hooks."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from arrayferry.extending import announced_hooks, describe_error


def layer_tests() -> list[type]:
    """Return the tests of the parts of each installed layer that has some, or one that is skipped if it cannot be imported."""
    found: dict[type, None] = {}
    for hook, point in announced_hooks().items():
        try:
            path = getattr(point.load(), "contract", "")
            found |= {resolve_name(path): None} if path else {}
        except Exception as error:
            found[_skipped(hook, f"{point.value} cannot be imported: {describe_error(error)}")] = (
                None
            )
    return list(found)


def _skipped(hook: str, why: str) -> type:
    def test(self: Any) -> None:
        pytest.skip(why)

    return type("Skipped", (), {f"test_{hook}": test})


if TYPE_CHECKING:

    class LayerTests:
        """The tests of the parts of the layers that are installed."""

else:
    LayerTests = type("LayerTests", tuple(layer_tests()), {})
