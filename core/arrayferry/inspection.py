"""Questions about plugins, libraries and routes, for the command `arrayferry` and other tools.

- `chosen_plugins` and `load_parts`: which installed plugins are loaded, and what one of them brings.
- `is_built_in`: whether a part comes with arrayferry.
- `route_between` and `device_kind`: the steps of arrays from one device to another.
- `describe_value`: an object, described for people.

Importing this loads no array library. The registry itself is `arrayferry.registry`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from ._plugin.backend import Backend
from ._plugin.origin import Origin
from ._registry.discovery import GROUP, chosen_plugins, is_built_in
from ._registry.registry import Registry, default_registry
from ._repr import describe_value
from ._route.devices import device_kind
from ._route.route import Route, Step, describe_route

__all__ = [
    "ENTRY_POINT_GROUP",
    "Origin",
    "Step",
    "chosen_plugins",
    "describe_value",
    "device_kind",
    "is_built_in",
    "load_parts",
    "route_between",
]

ENTRY_POINT_GROUP = GROUP
"""The group of entry points in which plugins are found."""


def load_parts(point: EntryPoint) -> dict[str, list[Any]]:
    """Load a plugin and return its parts, without registering it.

    Args:
        point: its entry point.

    Returns:
        Lists of its backends, converters, containers and sources, under these keys. Empty lists are left out.

    Raises:
        PluginError: the plugin cannot be loaded, or a hook returns something wrong. The reason names the line.

    Examples:
        >>> from importlib.metadata import EntryPoint
        >>> from arrayferry.inspection import load_parts
        >>> load_parts(EntryPoint("scipy", "arrayferry_plugins.scipy_", "arrayferry"))
        {'sources': [<Source scipy>]}
    """
    parts: dict[str, list[Any]] = {}
    for each in Registry(autoload=False).manager.load(point):
        parts.setdefault(each.hook.removeprefix("arrayferry_"), []).append(each.part)
    return parts


def route_between(
    source: Origin, target: Backend, *, source_device: str, device: Any = None
) -> Route:
    """Return the route of arrays that are on one device, as `arrayferry.route` does for the default device.

    Args:
        source: a backend or a source that can be used here.
        target: a backend that can be used here.
        source_device: the name of the device that the arrays are on.
        device: the device to convert to, None to let the target choose.

    Raises:
        DeviceError: the target has no such device.

    Examples:
        >>> import arrayferry as af
        >>> from arrayferry.inspection import route_between
        >>> backends = af.backends()
        >>> print(route_between(backends["numpy"], backends["torch"], source_device="cpu"))
        numpy (cpu) -> torch (cpu) shared
    """
    return describe_route(default_registry().catalog, source, target, device, source_device)


def __dir__() -> list[str]:
    return sorted(__all__)
