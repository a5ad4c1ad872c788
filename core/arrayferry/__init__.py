"""Convert arrays, also in nested containers, between NumPy, PyTorch, JAX, CuPy, Dask, Warp and any Array API library.

    >>> import arrayferry as af
    >>> import numpy as np
    >>> af.convert({"x": np.ones(2)}, "torch")
    {'x': tensor([1., 1.], dtype=torch.float64)}

Importing this package imports no array library. Most modules are imported when one of their names is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arrayferry_functions import agnostic as agnostic
    from arrayferry_streams import BlockError as BlockError
    from arrayferry_streams import BlockTimeoutError as BlockTimeoutError
    from arrayferry_streams import Stream as Stream
    from arrayferry_streams import stream as stream

    from . import extending as extending
    from . import testing as testing
    from . import typing as typing
    from ._public import *  # noqa: F403
    from ._trace.recorder import Trace as Trace
    from ._trace.recorder import trace as trace
    from ._trace.rows import TraceFinding as TraceFinding
    from ._trace.rows import TraceRow as TraceRow

__version__ = "0.1.0"

_MODULES = ("extending", "testing", "typing")
"""The public modules. Each module is imported on first use, so that only users of `testing` need pytest."""
_LAYERS = {
    "BlockError": "arrayferry_streams",
    "BlockTimeoutError": "arrayferry_streams",
    "Stream": "arrayferry_streams",
    "agnostic": "arrayferry_functions",
    "stream": "arrayferry_streams",
    "testing": "arrayferry_kit",
}
"""Public names that other packages define, each with its package. A name exists here if its package is installed."""
_PLACES = {
    "Trace": "_trace.recorder",
    "TraceFinding": "_trace.rows",
    "TraceRow": "_trace.rows",
    "trace": "_trace.recorder",
}
"""Public names that a first conversion does not need, each with its module. `_public` has the names that it needs."""


if not TYPE_CHECKING:  # type checkers would accept every name if they saw `__getattr__`

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            value: Any = importlib.import_module(f".{name}", __name__)
        elif name in _LAYERS:
            value = getattr(importlib.import_module(_LAYERS[name]), name)
        elif name in _PLACES:
            value = getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)
        elif name == "__all__":
            value = _names()
        else:
            value = None if name.startswith("_") else _kernel().get(name)
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def _kernel() -> dict[str, Any]:
    return vars(importlib.import_module("._public", __name__))


def _names() -> list[str]:
    own_names = [name for name in _kernel() if not name.startswith("_")]
    return sorted([*own_names, *_PLACES, *_installed(_LAYERS.keys() - set(_MODULES))])


def _installed(names: Iterable[str]) -> list[str]:
    """Return the names, except those that `_LAYERS` maps to a package which is not installed."""
    from importlib.util import find_spec

    return [name for name in names if name not in _LAYERS or find_spec(_LAYERS[name])]


def __dir__() -> list[str]:
    return sorted([*_names(), *_installed(_MODULES), "__version__"])
