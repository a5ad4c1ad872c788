"""The public names that a first conversion needs. `arrayferry` looks them up here when they are asked for."""

from __future__ import annotations

from ._api import (
    backend_of,
    backends,
    convert,
    converter,
    first_array,
    flatten,
    namespace_of,
    route,
)
from ._conversion.conversion import Conversion
from ._dtypes import STANDARD_DTYPES
from ._errors import (
    ArrayFerryError,
    BackendUnavailableError,
    BlockError,
    BlockTimeoutError,
    ContractError,
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
    TraceWarning,
    UnknownBackendError,
    UnsupportedDtypeError,
)
from ._options import Options
from ._plugin.autodiff import Autodiff, Crossing, Flat
from ._plugin.backend import Backend
from ._plugin.blocks import Blocks, Reader, Slices, even_lengths
from ._plugin.container import Container
from ._plugin.converter import Converter, Inline
from ._plugin.hookspecs import hookimpl
from ._plugin.origin import Source
from ._plugin.random import Random
from ._registry.registry import Registry, default_registry
from ._route.narrowing import fit_dtype
from ._route.route import Route
from ._tree.layout import Layout

__all__ = [
    "STANDARD_DTYPES",
    "ArrayFerryError",
    "Autodiff",
    "Backend",
    "BackendUnavailableError",
    "BlockError",
    "BlockTimeoutError",
    "Blocks",
    "Container",
    "ContractError",
    "Conversion",
    "ConversionError",
    "Converter",
    "CopyRequiredError",
    "Crossing",
    "DeviceError",
    "Flat",
    "Inline",
    "Layout",
    "NarrowingError",
    "NotAnArrayError",
    "OptionError",
    "Options",
    "PluginError",
    "PluginWarning",
    "Random",
    "Reader",
    "Registry",
    "Route",
    "Slices",
    "Source",
    "StructureError",
    "TraceWarning",
    "TracedValueError",
    "UnknownBackendError",
    "UnsupportedDtypeError",
    "backend_of",
    "backends",
    "convert",
    "converter",
    "even_lengths",
    "first_array",
    "fit_dtype",
    "flatten",
    "hookimpl",
    "namespace_of",
    "registry",
    "route",
]

registry: Registry = default_registry()
