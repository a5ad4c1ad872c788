"""Arrays cross between NumPy, PyTorch, JAX, CuPy, Dask and any Array API library.

    >>> import arrayferry as af
    >>> import numpy as np
    >>> af.convert({"x": np.ones(2)}, "torch")
    {'x': tensor([1., 1.], dtype=torch.float64)}

Importing this package loads no array library, and little else: names are looked up when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import testing as testing
    from ._agnostic import agnostic
    from ._backend import STANDARD_DTYPES, Backend
    from ._container import Container
    from ._conversion import Conversion
    from ._convert import (
        backend_of,
        backends,
        convert,
        converter,
        first_array,
        namespace_of,
        route,
    )
    from ._converter import Converter
    from ._dtypes import fit_dtype
    from ._errors import (
        ArrayFerryError,
        BackendUnavailableError,
        ConversionError,
        CopyRequiredError,
        DeviceError,
        NarrowingError,
        NotAnArrayError,
        OptionError,
        PluginError,
        PluginWarning,
        StructureError,
        TracedValueError,
        UnknownBackendError,
        UnsupportedDtypeError,
    )
    from ._hookspecs import hookimpl
    from ._options import Options
    from ._plan import Inline
    from ._registry import Registry
    from ._route import Route

    registry: Registry

__version__ = "0.1.0"

_HOMES = {
    "_agnostic": ("agnostic",),
    "_backend": ("STANDARD_DTYPES", "Backend"),
    "_container": ("Container",),
    "_conversion": ("Conversion",),
    "_convert": (
        "backend_of",
        "backends",
        "convert",
        "converter",
        "first_array",
        "namespace_of",
        "route",
    ),
    "_converter": ("Converter",),
    "_dtypes": ("fit_dtype",),
    "_errors": (
        "ArrayFerryError",
        "BackendUnavailableError",
        "ConversionError",
        "CopyRequiredError",
        "DeviceError",
        "NarrowingError",
        "NotAnArrayError",
        "OptionError",
        "PluginError",
        "PluginWarning",
        "StructureError",
        "TracedValueError",
        "UnknownBackendError",
        "UnsupportedDtypeError",
    ),
    "_hookspecs": ("hookimpl",),
    "_options": ("Options",),
    "_plan": ("Inline",),
    "_registry": ("Registry",),
    "_route": ("Route",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "STANDARD_DTYPES",
    "ArrayFerryError",
    "Backend",
    "BackendUnavailableError",
    "Container",
    "Conversion",
    "ConversionError",
    "Converter",
    "CopyRequiredError",
    "DeviceError",
    "Inline",
    "NarrowingError",
    "NotAnArrayError",
    "OptionError",
    "Options",
    "PluginError",
    "PluginWarning",
    "Registry",
    "Route",
    "StructureError",
    "TracedValueError",
    "UnknownBackendError",
    "UnsupportedDtypeError",
    "agnostic",
    "backend_of",
    "backends",
    "convert",
    "converter",
    "first_array",
    "fit_dtype",
    "hookimpl",
    "namespace_of",
    "registry",
    "route",
    "testing",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "registry":
        value: Any = importlib.import_module("._registry", __name__).default_registry()
    elif name == "testing":
        value = importlib.import_module(".testing", __name__)
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
