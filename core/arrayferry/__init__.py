"""Convert arrays between NumPy, PyTorch, JAX, CuPy, Dask, Warp and any Array API library, alone or nested.

    >>> import arrayferry as af
    >>> import numpy as np
    >>> af.convert({"x": np.ones(2)}, "torch")
    {'x': tensor([1., 1.], dtype=torch.float64)}

Importing this package loads no array library, and little else: names are looked up on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import adapting as adapting
    from . import inspection as inspection
    from . import testing as testing
    from . import typing as typing
    from ._public import *  # noqa: F403

__version__ = "0.1.0"

_MODULES = ("adapting", "inspection", "testing", "typing")
"""Public modules, which are imported on first use: `testing` needs pytest."""


if not TYPE_CHECKING:  # or checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value: Any = importlib.import_module(f".{name}", __name__)
        elif name == "__all__" or not name.startswith("_"):
            public = importlib.import_module("._public", __name__)
            value = getattr(public, name, None) if name in ("__all__", *public.__all__) else None
        else:
            value = None
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    public = importlib.import_module("._public", __name__)
    return sorted([*public.__all__, *_MODULES, "__version__"])
