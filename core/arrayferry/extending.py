"""Functions and classes for packages that build on arrayferry: layers, plugins, adapters and tools.

    from arrayferry.extending import map_arrays, observed_read, observers

- Trees: `map_arrays` calls a function with every array in a tree. `Kind` says how a conversion treats a value.
- Conversions: `kept_conversion` returns a cached conversion for a target and options. `conversion_like` and
  `device_like` return the backend and the device for the option `like`. `copy_required` returns the error to raise if
  `copy=False` is impossible.
- Dtypes: `dtype_name`, `dtype_named`, `dtype_info`, `target_dtype` and `unknown_dtypes`. `cast_checked` casts an array,
  and checks that the numbers fit.
- Plugins: `call_backend` calls a backend's method. If it fails, the error names the plugin. `raise_named` raises such
  an error. `overrides` says whether a plugin has an optional method. `has_item` says whether arrays of a type have
  `item()`. `portable` returns the name of a backend, to pickle it. `is_built_in`, `chosen_plugins`, `load_parts` and
  `check_part` are for installed plugins and their parts.
- Routes: `route_between` and `device_kind`.
- Keys: `exact_key` for the type and the contents of a value, and `IdentityKey` for an object itself.
- Observers: `observers` and `observed_read` make reads of numbers visible to `arrayferry.trace`.

Importing this module imports no array library. `arrayferry.typing` has types for annotations.
"""

# pyright: reportInvalidTypeVarUse=false
from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, overload

from arrayferry._types import AnyArray, AnyTree, Device

from ._api import conversion_like, device_like, kept_conversion, portable
from ._dtypes import DtypeInfo, dtype_info, dtype_name, dtype_named, unknown_dtypes
from ._errors import ConversionError, describe_error
from ._observers import observers
from ._options import checked_count
from ._plugin.backend import Backend
from ._plugin.call import call_backend, overrides, raise_named
from ._plugin.origin import Origin
from ._plugin.part import Part
from ._plugin.types import has_item, resolve_type
from ._registry.checks import check_part
from ._registry.discovery import (
    CHOICE,
    GROUP,
    announced_hooks,
    chosen_plugins,
    is_built_in,
    is_ours,
)
from ._registry.parts import Parts
from ._registry.registry import Registry, default_registry
from ._route.devices import device_kind
from ._route.dtypes import target_dtype
from ._route.memory import copy_required, never_changes, runs_backwards
from ._route.narrowing import cast_checked
from ._route.route import Route, Step, describe_route
from ._tree.keys import IdentityKey, exact_key
from ._tree.kind import Kind
from ._tree.spec import flatten as flatten_by
from ._tree.tree import Tree
from ._tree.values import refuse_more_than_values

if TYPE_CHECKING:
    from ._types import K, V, X

__all__ = [
    "ENTRY_POINT_GROUP", "PLUGINS_VARIABLE", "DtypeInfo", "IdentityKey", "Kind", "Origin",
    "Part", "Parts", "Step", "announced_hooks", "call_backend", "cast_checked", "check_part",
    "checked_count", "chosen_plugins", "conversion_like", "copy_required", "describe_error",
    "device_kind", "device_like", "dtype_info", "dtype_name", "dtype_named", "exact_key",
    "flatten_by", "has_item", "is_built_in", "is_ours", "kept_conversion", "load_parts",
    "map_arrays", "never_changes", "observed_read", "observers", "overrides", "portable", "raise_named",
    "refuse_more_than_values", "resolve_type", "route_between", "runs_backwards",
    "target_dtype", "unknown_dtypes",
]  # fmt: skip

ENTRY_POINT_GROUP = GROUP
"""The name of the entry point group of plugins."""
PLUGINS_VARIABLE = CHOICE
"""The name of the environment variable that lists the plugins to load."""


@overload
def map_arrays(function: Callable[[Any], V], value: X) -> V: ...
@overload
def map_arrays(function: Callable[[Any], V], value: dict[K, Any]) -> dict[K, Any]: ...
@overload
def map_arrays(function: Callable[[Any], V], value: AnyTree) -> Any: ...
def map_arrays(function: Callable[[Any], Any], value: AnyTree) -> Any:
    """Call a function with every array in a tree, and return a tree of the results.

    Args:
        function: a function to call with each array.
        value: an array, a tree, or any other value. It is never modified.

    Raises:
        ConversionError: the function raised this error. The path of the array in the tree is added to the error.
        StructureError: the tree is cyclic or too deep, or a container cannot be rebuilt with the results.

    Examples:
        >>> import numpy as np
        >>> from arrayferry.extending import map_arrays
        >>> map_arrays(np.shape, {"image": np.zeros((4, 3)), "name": "cart"})
        {'image': (4, 3), 'name': 'cart'}
    """
    tree = Tree(value, default_registry().catalog.kind)
    results = []
    for index, array in enumerate(tree.arrays):
        try:
            results.append(function(array))
        except ConversionError as error:
            raise error.locate(path=tree.path_of(index)) from error.__cause__
    return tree.build(results)


def load_parts(point: EntryPoint) -> dict[str, list[Any]]:
    """Load a plugin and return its parts, without registering it.

    Args:
        point: the entry point of the plugin.

    Returns:
        A dict of lists of parts, with the keys "backends", "converters", "containers" and "sources". A key without
        parts is omitted.

    Raises:
        PluginError: the plugin cannot be loaded, or a hook returns a wrong result. The error names the line of code
            that failed.

    Examples:
        >>> from importlib.metadata import EntryPoint
        >>> from arrayferry.extending import load_parts
        >>> load_parts(EntryPoint("scipy", "arrayferry_plugins.scipy_", "arrayferry"))
        {'sources': [<Source scipy>]}
    """
    parts: dict[str, list[Any]] = {}
    for contribution in Registry(autoload=False).manager.load(point):
        parts.setdefault(contribution.hook.removeprefix("arrayferry_"), []).append(
            contribution.part
        )
    return parts


def route_between(
    source: Origin, target: Backend, *, source_device: str, device: Device = None
) -> Route:
    """Return the route of arrays on a certain device. No array is needed.

    In contrast, `arrayferry.route` without an array returns the route of arrays on the default device.

    Args:
        source: a backend or a source that can be used here.
        target: a backend that can be used here.
        source_device: the name of the device that the arrays are on.
        device: the device of the results, as for `arrayferry.convert`.

    Raises:
        DeviceError: the target has no such device.

    Examples:
        >>> import arrayferry as af
        >>> from arrayferry.extending import route_between
        >>> backends = af.backends()
        >>> print(route_between(backends["numpy"], backends["torch"], source_device="cpu"))
        numpy (cpu) -> torch (cpu) shared
    """
    return describe_route(default_registry().catalog, source, target, device, source_device)


def observed_read(read: Callable[[Any], Any], x: AnyArray) -> Any:
    """Read a number from an array, and report the read to all traces. Call this only if `observers` is not empty.

    Args:
        read: a function that returns the number in `x`.
        x: the array. For a NumPy array, and for any other value, nothing is reported.

    Examples:
        >>> import numpy as np
        >>> from arrayferry.extending import observed_read, observers
        >>> x = np.array([3])
        >>> observed_read(np.ndarray.item, x) if observers else x.item()
        3
    """
    from ._trace.watch import read_number  # imported here, since most programs have no trace

    return read_number(read, x)


def __dir__() -> list[str]:
    return sorted(__all__)
