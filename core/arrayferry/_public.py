"""The public names, in one place. `arrayferry` looks them up here when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from ._lazy import lazy_names
from ._options import Options
from ._plugin.autodiff import Autodiff, Crossing, Differentiable, Flat
from ._plugin.backend import Backend
from ._plugin.blocks import Blocks, Reader, Slices, even_lengths
from ._plugin.container import Container
from ._plugin.converter import Converter, Inline
from ._plugin.hooks import hookimpl
from ._plugin.origin import Source
from ._plugin.random import Random
from ._registry.registry import Registry, default_registry
from ._route.narrowing import fit_dtype
from ._route.route import Route
from ._tree.layout import Layout

if TYPE_CHECKING:
    from ._agnostic import agnostic
    from ._stream.function import stream
    from ._stream.stream import Stream
    from ._trace.recorder import Trace, trace
    from ._trace.rows import TraceFinding, TraceRow

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
    "Differentiable",
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
    "Stream",
    "StructureError",
    "Trace",
    "TraceFinding",
    "TraceRow",
    "TraceWarning",
    "TracedValueError",
    "UnknownBackendError",
    "UnsupportedDtypeError",
    "agnostic",
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
    "stream",
    "trace",
]

registry: Registry = default_registry()

if not TYPE_CHECKING:  # what a first conversion does not need
    __getattr__ = lazy_names(
        __name__,
        {
            "Stream": "arrayferry._stream.stream",
            "Trace": "arrayferry._trace.recorder",
            "TraceFinding": "arrayferry._trace.rows",
            "TraceRow": "arrayferry._trace.rows",
            "agnostic": "arrayferry._agnostic",
            "stream": "arrayferry._stream.function",
            "trace": "arrayferry._trace.recorder",
        },
    )
