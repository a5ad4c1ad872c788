"""Reads objects of no known library that could become arrays. If units or masks would be lost, an error is raised.

In a tree, such objects are converted only with `unknown="convert"`, since arrayferry does not know what is lost.
If the whole value is such an object, an error is raised, since users would not expect the object back unchanged.
"""

from __future__ import annotations

import array
import datetime
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import islice
from numbers import Number
from pathlib import PurePath
from types import ModuleType
from typing import Any

from arrayferry._errors import (
    ConversionError,
    NotAnArrayError,
    UnconvertedWarning,
    describe_error,
)
from arrayferry._plugin.origin import Source
from arrayferry._types import AnyArray, AnyTree
from arrayferry._utilities.caller import caller_level
from arrayferry._utilities.text import type_name

from .kind import Kind
from .state import class_attribute

_BY_NUMPY = ("__array__", "__array_interface__", "__array_struct__")
_BY_ARROW = ("__arrow_c_array__", "__arrow_c_stream__")
_BUFFERS = (memoryview, array.array)
_UNITS = "a value of type {} has units, which would be lost"
_PASS_MAGNITUDE = "Convert it to the units that you want first, then pass its magnitude without units, such as x.value."
_PROTOCOLS = ("__dlpack__", *_BY_NUMPY, "__cuda_array_interface__", *_BY_ARROW)
_PLAIN = (str, bytes, bytearray, type, ModuleType, Enum)

_PYTHONS = (
    *_PLAIN, Number, datetime.date, datetime.time, datetime.timedelta, set, frozenset, BaseException, PurePath,
)  # fmt: skip
"""Types of plain data. Objects of their subclasses are plain data too."""

_HEAP_TYPE = 1 << 9
"""The flag of classes that are created at run time."""
_HOMES = frozenset({*sys.stdlib_module_names, "numpy"})


def may_become_array(value: AnyTree) -> bool:
    """Return whether an object that is not an array, container or source could become an array."""
    cls = type(value)
    if issubclass(cls, _BUFFERS):
        return True
    scalar_type = getattr(sys.modules.get("numpy"), "generic", ())
    if issubclass(cls, _PLAIN) or issubclass(cls, scalar_type):
        return False
    return _offers(value, _PROTOCOLS) or _has_numpy(value)


def is_proxy(value: AnyTree) -> bool:
    """Return whether the `__class__` of an object is not its type, as with proxies."""
    try:
        return value.__class__ is not type(value)
    except Exception:
        return False


def stands_for_arrays(proxy: Any) -> bool:
    """Return whether the `__class__` of a proxy is a class of arrays or of structures."""
    cls = proxy.__class__
    attributes = (*_PROTOCOLS, "__dataclass_fields__", "__attrs_attrs__")
    return issubclass(cls, (dict, list, tuple, Mapping)) or any(
        class_attribute(cls, attribute) is not None for attribute in attributes
    )


def hides_items(value: AnyTree, count: int) -> bool:
    """Return whether a dict, list or tuple has, by its own methods, more items than the `count` that were read."""
    try:
        return len(value) > count or sum(1 for _ in islice(value, count + 1)) > count
    except Exception:
        return False


def is_plain(value: AnyTree) -> bool:
    """Return whether an object is plain data of Python or NumPy, such as text or a date, that is not meant as an array."""
    cls = type(value)
    if issubclass(cls, _PYTHONS):
        return True
    # a class written in Rust may have the module "builtins", but is created at run time, unlike built-in classes
    is_foreign = cls.__module__ == "builtins" and bool(cls.__flags__ & _HEAP_TYPE)
    return not is_foreign and cls.__module__.partition(".")[0] in _HOMES


def refuse_unknown(value: AnyTree, path: str, *, has_source: bool = False) -> NotAnArrayError:
    """Return the error for an object that could become an array, but may not be converted.

    Args:
        value: the object.
        path: the path of the object in the tree.
        has_source: whether a source reads objects of this type.
    """
    cls_name = type_name(type(value))
    if _has_units(value):
        reason, remedy = _UNITS.format(cls_name), _PASS_MAGNITUDE
    else:
        reason = f"a value of type {cls_name} is not an array of a known library"
        package = type(value).__module__.partition(".")[0]
        is_standard = package in {*_HOMES, "__main__"}
        plugin_clause = "that has this type among its array_types"
        plugin_hint = "" if is_standard else f", or install a plugin for {package} {plugin_clause}"
        convert_hint = 'pass unknown="convert"'
        if has_source:
            remedy = f"Convert it by itself, or {convert_hint}."
        elif not may_become_array(value):
            # the value is a proxy, or a structure that hides items
            remedy = "Pass the object that it stands for, or the items that it hides, in a list or dict of Python."
        elif _offers(value, "__dlpack__"):  # not numpy(), which would copy the array to the host
            dlpack_call = "from_dlpack(x) of the library that you want"
            remedy = f"P{convert_hint[1:]}, or call {dlpack_call} first{plugin_hint}."
        else:
            own_call = _own_way(value)
            gpu_note = (
                ", which needs a CuPy or PyTorch that supports this GPU"
                if own_call in _BY_GPU.values()
                else ""
            )
            remedy = f"Call {own_call} first{plugin_hint}, or {convert_hint}{gpu_note}."
    return NotAnArrayError(reason, remedy=remedy, path=path)


_unconverted: weakref.WeakSet[type] = weakref.WeakSet()
"""The classes for which a warning was issued."""


def warn_of_unconverted(value: AnyTree, path: Callable[[], str]) -> None:
    """Warn, once for each class, that an object stays unchanged in a tree although a source could read its numbers."""
    cls = type(value)
    if cls not in _unconverted and _holds_numbers(value):
        warnings.warn(
            f"the {type_name(cls)} at {path()} was not converted, since objects of this class stay unchanged in trees. "
            'Pass unknown="convert" to convert their values, or convert them one by one.',
            UnconvertedWarning,
            stacklevel=caller_level(),
        )
        # added after the warning, so that if warnings are errors, every call raises the error
        _unconverted.add(cls)


def _holds_numbers(value: AnyTree) -> bool:
    try:
        kind = getattr(value.dtype, "kind", None)
        return kind in {*"biufc"} if isinstance(kind, str) else value.dtype.is_numeric() is True
    except Exception:
        # the value has no dtype of NumPy, pandas or Polars, or cannot be read any more
        return False


def refuse_object(value: AnyTree) -> NotAnArrayError:
    """Return the error for a whole value that neither is an array nor could become one."""
    return NotAnArrayError(
        f"a value of type {type_name(type(value))} is neither an array of a known library nor a structure",
        remedy="Pass an array or a structure of arrays, or install a plugin that has this type among its array_types, or a "
        "Container for it.",
    )


def _own_way(value: AnyTree) -> str:
    """Return the call that makes an array from an object, as a user would write it."""
    for method in ("to_numpy", "numpy"):
        if callable(class_attribute(type(value), method)):
            return f"x.{method}()"
    if issubclass(type(value), _BUFFERS) or _offers(value, _BY_NUMPY):
        return "numpy.asarray(x)"
    if _offers(value, "__arrow_c_array__"):
        return "pyarrow.array(x)"
    gpu_call = next((call for name, call in _BY_GPU.items() if _offers(value, name)), "")
    return "pyarrow.table(x)" if _offers(value, _BY_ARROW) else gpu_call


_BY_GPU = {"copy_to_host": "x.copy_to_host()", "get": "x.get()", "__cuda_array_interface__": "cupy.asarray(x)"}  # fmt: skip
"""The calls to suggest for objects on a GPU, by attribute. The first attribute that the object has decides."""


def is_on_gpu(value: AnyTree) -> bool:
    """Return whether an object of no known library says that its memory is on a GPU."""
    try:
        if _offers(value, "__dlpack__"):
            # the device types of CUDA, ROCm and managed memory
            return value.__dlpack_device__()[0] in (2, 10, 13)
        return _offers(value, "__cuda_array_interface__") and bool(value.__cuda_array_interface__)
    except Exception:
        return False


class _Unknown(Source):
    """Reads objects of no known library by the protocols that they offer. Other code may use their memory."""

    name = "unknown"
    package = "builtins"
    array_types = ()
    memory = "unknown"

    def to_numpy(self, x: AnyArray) -> Any:
        return read_values(x)


UNKNOWN = Kind("source", source=_Unknown())


def has_own_attributes(value: AnyTree) -> bool:
    """Return whether an object has attributes of its own, so that objects of its class may offer different protocols."""
    try:
        return type(value.__dict__) is dict
    except Exception:
        return False


def _has_numpy(value: AnyTree) -> bool:
    """Return whether an object is an array that only its own `numpy()` reads, such as an array of tinygrad."""
    return all(_offers(value, name) for name in ("numpy", "shape", "dtype"))


def _offers(value: AnyTree, names: str | tuple[str, ...]) -> bool:
    """Return whether an object has one of these attributes, without running any of its code."""
    names = (names,) if isinstance(names, str) else names
    attributes = value.__dict__ if has_own_attributes(value) else ()
    return any(
        name in attributes or class_attribute(type(value), name) is not None for name in names
    )


def read_values(x: AnyTree, *others: Callable[[Any], Any]) -> Any:
    """Read the values of an object into a NumPy array by the protocols that it offers.

    Args:
        x: the object.
        others: functions that read `x`, to try after the protocols.

    Raises:
        ConversionError: the object has no values that can be read, or its units or mask would be lost.
    """
    import numpy

    cls_name = type_name(type(x))
    refuse_more_than_values(x)
    failures: list[Exception] = []
    for read in (*_ways(x), *others):
        try:
            values = read(x)
            if isinstance(values, numpy.ndarray) and values.dtype != object:
                refuse_more_than_values(values)
                return numpy.asarray(values)
            dtype_text = " of dtype object" if isinstance(values, numpy.ndarray) else ""
            failures.append(TypeError(f"a {type(values).__qualname__}{dtype_text} was returned"))
        except (MemoryError, ConversionError):
            raise
        except Exception as error:
            failures.append(error)
    reason = f" ({describe_error(failures[0])})" if failures else ""
    if not failures and is_on_gpu(x):
        reason = ": it is on a GPU, and neither CuPy nor PyTorch could read it here"
    raise ConversionError(
        f"a value of type {cls_name} offers no array of numbers{reason}",
        remedy="Make a NumPy array of it with its own library, or write a plugin for that library.",
    ) from (failures[0] if failures else None)


def refuse_more_than_values(x: AnyTree) -> None:
    """Raise an error for an array with units or masked elements, or for an object that could become such an array.

    Raises:
        ConversionError: the units or the mask would be lost.
    """
    import numpy

    if _has_units(x):
        raise ConversionError(_UNITS.format(type_name(type(x))), remedy=_PASS_MAGNITUDE)
    if isinstance(x, numpy.recarray) and not _offers(x, "mask"):
        return  # `mask` may be a field of the records instead of a mask
    mask = numpy.asarray(getattr(x, "mask", False))
    # the mask of a structured array has a bool for each field, and only `count_nonzero` can read it
    if mask.dtype == numpy.ma.make_mask_descr(mask.dtype) and numpy.count_nonzero(mask):
        raise ConversionError(
            f"a value of type {type_name(type(x))} has masked elements, so its mask would be lost",
            remedy="Fill the masked elements first, for example by x.filled(value), or convert its data and its mask.",
        )


def _has_units(x: AnyTree) -> bool:
    names = ("unit", "units")
    return _offers(x, names) and any(getattr(x, name, None) is not None for name in names)


def _ways(x: AnyTree) -> Iterator[Callable[[Any], Any]]:
    """For each protocol that an object offers, yield a function that reads the object."""
    import numpy

    if _offers(x, "__dlpack__"):
        yield numpy.from_dlpack
    if _offers(x, "__array__"):
        yield lambda x: x.__array__()  # asarray would drop the mask of a masked array
    if issubclass(type(x), _BUFFERS) or _offers(x, (*_BY_NUMPY[1:], "__buffer__")):
        yield numpy.asarray
    if _has_numpy(x):
        yield lambda x: x.numpy()
    if _offers(x, "__arrow_c_array__"):  # not a stream, which can be read only one time
        yield _by_arrow


def _by_arrow(x: AnyArray) -> Any:
    import pyarrow

    arrow_array = pyarrow.array(x)
    if arrow_array.null_count or getattr(arrow_array.type, "tz", None) is not None:
        raise ValueError("it has missing values or a time zone")
    return arrow_array.to_numpy(zero_copy_only=False)
