"""The tests that a plugin must pass. They are in the package `arrayferry_kit`, whose import needs pytest."""

import importlib

from . import _LAYERS

_kit = importlib.import_module(_LAYERS["testing"])
__all__ = list(_kit.__all__)
globals().update({name: getattr(_kit, name) for name in __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
