"""A backend for an Array API library without a plugin, created on demand.

arrayferry does not know what such a library guarantees about its memory. So memory is shared with the library only with
`copy=False`, and arrayferry then checks that the result shares memory.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, TypeVar

from arrayferry._dtypes import STANDARD_DTYPES, dtype_name, dtype_named
from arrayferry._errors import UnsupportedDtypeError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.devices import Devices
from arrayferry._plugin.origin import failed_import
from arrayferry._tree.values import read_values
from arrayferry._types import AnyArray, Device
from arrayferry._utilities.cache import once

T = TypeVar("T")

LIBRARIES = (
    "array_api_compat", "array_api_strict", "blosc2", "cubed", "marray", "ndonnx", "ragged", "sparse",
)  # fmt: skip
"""Packages that are imported when a user passes the name of one of their namespaces."""
GROUP = "array_api"
"""The entry-point group in which, by the Array API standard, packages declare their namespaces."""


def is_namespace(module: ModuleType) -> bool:
    """Return whether a module looks like a namespace of the Array API standard."""
    return callable(getattr(module, "asarray", None)) and (
        hasattr(module, "__array_api_version__") or hasattr(module, "__array_namespace_info__")
    )


def _info(namespace: Any, ask: Callable[[Any], T], default: T) -> T:
    """Return `ask(namespace.__array_namespace_info__())`, or `default` if that raises an error."""
    try:
        return ask(namespace.__array_namespace_info__())
    except Exception:
        return default


class GenericDevices(Devices):
    """The devices of an Array API library, as its namespace names them."""

    def __init__(self, namespace: Any) -> None:
        self.xp: Any = namespace

    @once
    def can_choose(self) -> bool:
        """Whether arrays have a device, so that users can choose one. If False, arrays are in host memory."""
        return hasattr(self.xp.asarray(0), "device")

    def names(self) -> tuple[str, ...]:
        if not self.can_choose:
            return ("cpu",)
        devices = _info(self.xp, lambda info: [info.default_device(), *info.devices()], ["cpu"])
        return tuple(dict.fromkeys(map(self.name_of, devices)))

    def name_of(self, device: Device) -> str:
        library_name = self.xp.__name__.partition(".")[0]
        is_own_device = type(device).__module__.partition(".")[0] == library_name
        if device is None or (is_own_device and str(device) == object.__repr__(device)):
            return "cpu"  # the library has a single device, which has no name
        # the name is str() of the attribute `_device`, as in array_api_strict, or of the object itself
        device_text = str(getattr(device, "_device", device)).lower()
        return "cpu" if device_text in ("cpu", "cpu_device", "cpu:0") else device_text

    def move(self, x: AnyArray, device: Device) -> Any:
        try:
            return x.to_device(self.object_of(device))
        except (TypeError, ValueError) as error:
            self.refuse_dtype(dtype_name(x.dtype), device, error)
            raise

    def object_of(self, device: Device) -> Any:
        """Return the device object of the library for a name, or `device` itself if no device has this name."""
        if not isinstance(device, str):
            return device
        own_devices: Iterable[Any] = _info(self.xp, lambda info: info.devices(), ())
        return next((own for own in own_devices if self.name_of(own) == device), device)

    def dtypes(self, **device_option: Any) -> frozenset[str]:
        """Return the names of the dtypes of `device`, a device object, or of the default device if it is left out."""
        standard_names = STANDARD_DTYPES - {"float16"}
        names = _info(
            self.xp, lambda info: frozenset(info.dtypes(kind=None, **device_option)), standard_names
        )
        return names | {name for name in ("float16", "bfloat16") if hasattr(self.xp, name)}

    def refuse_dtype(self, dtype: str, device: Device, error: Exception) -> None:
        """Raise an `UnsupportedDtypeError` if the namespace says that a device lacks a dtype.

        Args:
            dtype: the name of the dtype of an array.
            device: the device, as `object_of` accepts it, or None for the default device.
            error: the error that the library raised for the array. It becomes the cause.
        """
        own_device = self.object_of(device)
        if device is not None and dtype not in self.dtypes(device=own_device):
            raise UnsupportedDtypeError(
                f"the device {self.name_of(own_device)!r} of {self.xp.__name__} has no {dtype}",
                remedy="Cast the array to a dtype of this device first, or pass another device.",
                dtype=dtype,
            ) from error


class GenericBackend(Backend):
    """An Array API library, used only through its namespace."""

    memory = "unknown"
    array_types = ()

    def __init__(self, namespace: ModuleType) -> None:
        self.xp: Any = namespace
        self.devices = GenericDevices(namespace)
        self.name = namespace.__name__
        self.package = namespace.__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.name,)

    def to_numpy(self, x: AnyArray) -> Any:
        readers = (getattr(self.xp, "asnumpy", None), getattr(type(x), "unwrap_numpy", None))
        return read_values(x, *filter(None, readers), lambda x: x[...], self._from_bfloat16)

    def _from_bfloat16(self, x: AnyArray) -> Any:
        """Return the values of a bfloat16 array. The array is cast to float32 first, which NumPy can read."""
        if dtype_name(x.dtype) != "bfloat16":
            raise TypeError
        return read_values(self.xp.astype(x, self.xp.float32)).astype(dtype_named("bfloat16"))

    def is_traced(self, x: AnyArray) -> bool:
        if not hasattr(x, "unwrap_numpy"):
            return False
        try:
            x.unwrap_numpy()
        except ValueError:  # ndonnx raises this error for an array in a graph, which has no values
            return True
        return False

    def is_sparse(self, x: AnyArray) -> bool:
        return callable(getattr(type(x), "todense", None))

    def to_dense(self, x: AnyArray) -> Any:
        return x.todense()

    def from_numpy(self, x: AnyArray, device: Device = None) -> Any:
        devices: Any = self.devices
        device_chosen = device is not None and devices.can_choose
        device_option = {"device": devices.object_of(device)} if device_chosen else {}
        source_dtype = x.dtype.name
        # without an explicit dtype, some libraries choose another dtype, as MLX does for float64
        dtype = getattr(self.xp, source_dtype, None)
        try:
            y = self.xp.asarray(x, dtype=dtype, **device_option)
        except (TypeError, ValueError) as error:
            devices.refuse_dtype(source_dtype, device, error)
            raise
        dtype_differs = dtype_name(y.dtype) != source_dtype and (dtype is None or y.dtype != dtype)
        if dtype_differs or tuple(y.shape) != x.shape:
            raise UnsupportedDtypeError(
                f"{self.name} turned an array of dtype {source_dtype} and shape {x.shape} into one of "
                f"dtype {y.dtype} and shape {tuple(y.shape)}",
                remedy="Convert the array to a dtype of this library first, or write a plugin for the library.",
                dtype=source_dtype,
            )
        return y

    def copy(self, x: AnyArray) -> Any:
        return self.xp.asarray(x, copy=True)

    def device_of(self, x: AnyArray) -> str:
        return self.devices.name_of(getattr(x, "device", "cpu"))

    def number_dtype(self, kind: str) -> str:
        kind_names = {"bool": "bool", "int": "integral", "float": "real floating"}
        kind_name = kind_names.get(kind, "complex floating")
        dtype = _info(self.xp, lambda info: info.default_dtypes()[kind_name], None)
        return super().number_dtype(kind) if dtype is None else dtype_name(dtype)

    def dtypes(self) -> frozenset[str]:
        devices: Any = self.devices
        return devices.dtypes()  # type: ignore[no-any-return]


def _restore(name: str) -> GenericBackend:
    return GenericBackend(importlib.import_module(name))


def find_namespace(name: str) -> ModuleType | None:
    """Find a namespace that has been imported, or that belongs to a known library of the Array API.

    No other module is imported, since a mistyped name may be the name of any module. The result is None if no namespace
    has this name.

    Raises:
        BackendUnavailableError: the import of the namespace fails.
    """
    module = _loaded(name)
    if module is None and (path := _path_of(name)):
        top_package = path.partition(".")[0]
        import_error = failed_import(name, path, top_package if top_package in LIBRARIES else "")
        if import_error is not None and not _is_missing(path, import_error.__cause__):
            raise import_error
        module = _loaded(path)
    return module


def _loaded(name: str) -> ModuleType | None:
    module = sys.modules.get(name)
    return module if isinstance(module, ModuleType) and is_namespace(module) else None


def _path_of(name: str) -> str:
    """Return the module to import for the name of a namespace, or "" if the name is not known."""
    if name.partition(".")[0] in LIBRARIES:
        return name
    return next((p.module for p in entry_points(group=GROUP) if name in (p.name, p.module)), "")


def _is_missing(path: str, error: BaseException | None) -> bool:
    """Return whether an import failed because the module does not exist."""
    return isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")
