"""The public names that are imported with the first conversion. `arrayferry` finds them here on first use."""

from ._api import backend_of as backend_of
from ._api import backends as backends
from ._api import convert as convert
from ._api import converter as converter
from ._api import first_array as first_array
from ._api import flatten as flatten
from ._api import namespace_of as namespace_of
from ._api import route as route
from ._conversion.conversion import Conversion as Conversion
from ._dtypes import STANDARD_DTYPES as STANDARD_DTYPES
from ._errors import ArrayFerryError as ArrayFerryError
from ._errors import BackendUnavailableError as BackendUnavailableError
from ._errors import ContractError as ContractError
from ._errors import ConversionError as ConversionError
from ._errors import CopyRequiredError as CopyRequiredError
from ._errors import DeviceError as DeviceError
from ._errors import NarrowingError as NarrowingError
from ._errors import NotAnArrayError as NotAnArrayError
from ._errors import OptionError as OptionError
from ._errors import PluginError as PluginError
from ._errors import PluginWarning as PluginWarning
from ._errors import StructureError as StructureError
from ._errors import TracedValueError as TracedValueError
from ._errors import TraceWarning as TraceWarning
from ._errors import UnconvertedWarning as UnconvertedWarning
from ._errors import UnknownBackendError as UnknownBackendError
from ._errors import UnsupportedDtypeError as UnsupportedDtypeError
from ._options import Options as Options
from ._plugin.backend import Backend as Backend
from ._plugin.container import Container as Container
from ._plugin.converter import Converter as Converter
from ._plugin.converter import Inline as Inline
from ._plugin.devices import Devices as Devices
from ._plugin.dlpack import DLPack as DLPack
from ._plugin.hookspecs import hookimpl as hookimpl
from ._plugin.origin import Source as Source
from ._registry.registry import Registry as Registry
from ._registry.registry import default_registry as _default_registry
from ._route.narrowing import fit_dtype as fit_dtype
from ._route.route import Route as Route
from ._tree.spec import TreeSpec as TreeSpec

registry: Registry = _default_registry()
