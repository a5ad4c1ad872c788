"""Spells device names in the same way for all libraries, and chooses the device of a result.

The name of a device is "cpu", or a kind with an index, as in "cuda:0". The name of several devices is their names,
joined by commas. The backend of a library translates the library's own names and device objects into these names.
"""

from __future__ import annotations

from typing import Any

from arrayferry._errors import DeviceError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, overrides, wrong_result
from arrayferry._plugin.devices import Devices
from arrayferry._plugin.origin import Origin
from arrayferry._types import AnyArray, Device

DEFAULT = "default"
"""The value of the option `device` that selects the default device of the target."""

_SYNONYMS = {"gpu": "cuda", "nvidia": "cuda"}


def device_kind(name: str) -> str:
    """Return the kind of the devices in a name: "cuda" for "cuda:1" and for "cuda:0,cuda:1"."""
    return name.partition(",")[0].partition(":")[0]


def on_host(name: str) -> bool:
    """Return whether a device uses host memory, as "cpu" and "cpu:1" do, but "cuda:1" does not."""
    return device_kind(name) == "cpu"


def memory_of(name: str) -> str:
    """Return the name of the memory that a device uses: "cpu" for "cpu:1", and "cuda:1" for "cuda:1"."""
    return name if name == "cpu" or not on_host(name) else "cpu"


def tells_when_done(origin: Origin) -> bool:
    """Return whether a library can report when the work that it has queued on a device is done."""
    return overrides(origin.devices, Devices.fence)


def device_of(origin: Origin, x: AnyArray) -> str:
    """Return the name of the device of an array.

    Raises:
        ConversionError: the plugin fails, or does not return a string.
    """
    name = call_backend(origin, "device_of", x)
    if not isinstance(name, str):
        raise wrong_result(origin, "device_of", repr(name), "It must return the name of a device.")
    return name


def device_if_known(origin: Origin, x: AnyArray) -> str:
    """Return the name of the device of an array, or "" if it is unknown, as for a traced value."""
    try:
        return str(origin.device_of(x))
    except Exception:
        return ""


def spell_device(name: str) -> str:
    """Spell a device name as all backends do: "gpu" becomes "cuda:0", "cpu:0" becomes "cpu"."""
    kind, _, index = name.strip().lower().partition(":")
    kind = _SYNONYMS.get(kind, kind)
    if kind == "cpu" and index == "0":
        index = ""
    elif not index and kind in ("cuda", "mps", "xpu", "tpu", "rocm"):
        index = "0"
    return f"{kind}:{index}" if index else kind


def resolve_device(target: Backend, device: Device, source_device: str) -> tuple[str, Any]:
    """Choose the device of the result.

    If no device is requested, an array on an accelerator stays on this device, or moves to another device of the same
    kind. If the target can use no device of this kind, if the array is in host memory, or if `device` is `DEFAULT`, the
    array moves to the target's default device.

    Args:
        target: the backend of the result.
        device: the device that the user requested, or None for no request.
        source_device: the name of the device of the array.

    Returns:
        The name of the device, and the device as the methods of the backend accept it: None for the default device.

    Raises:
        DeviceError: the target does not have the requested device on this machine.
    """
    if isinstance(device, str) and device == DEFAULT:
        return _default(target), None
    if device is None:
        kind = "cpu" if source_device == "cpu" else device_kind(source_device)
        if kind not in ("cpu", ""):
            usable_names = _devices(target)
            for name in (source_device, *usable_names):
                if name in usable_names and device_kind(name) == kind:
                    return name, name
        return _default(target), None
    usable_names = _devices(target)
    if isinstance(device, str):
        requested = device
    else:
        requested = str(call_backend(target, "devices.name_of", device))
        if not call_backend(target, "devices.is_named", device):
            return requested, device
    name = spell_device(requested)
    # return a name, since `device` may be an object of another library
    for spelling in (requested, name):
        if spelling in usable_names:
            return spelling, spelling
    hint = f" ({name!r})" if device_kind(requested.strip().lower()) != device_kind(name) else ""
    raise DeviceError(
        f"{target.name} has no device {device!r:.80}{hint} here",
        remedy=f"Pass one of its devices: {', '.join(map(repr, usable_names))}.",
        device=name,
    )


def _devices(target: Backend) -> list[str]:
    devices = call_backend(target, "devices.names")
    usable_names = [str(name) for name in devices] if isinstance(devices, (tuple, list)) else []
    if not usable_names:
        raise DeviceError(
            f"devices.names() of the backend {target.name!r} named no device"
            + (f", but returned {devices!r}" if devices else ""),
            remedy="It must return a tuple or list of at least one name. Report this to the author of the plugin.",
        )
    return usable_names


def _default(target: Backend) -> str:
    if not overrides(target.devices, Devices.default):
        return _devices(target)[0]
    return str(call_backend(target, "devices.default"))
