"""The values of objects that are not arrays of a known library, and what would be lost with them."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from typing import Any

from arrayferry._errors import ConversionError, describe_error

from .state import class_attribute

__all__ = [
    "BUFFERS",
    "BY_ARROW",
    "BY_NUMPY",
    "PASS_MAGNITUDE",
    "has_own_attributes",
    "has_units",
    "offers",
    "read_values",
    "refuse_more_than_values",
    "type_name",
]


BY_NUMPY = ("__array__", "__array_interface__", "__array_struct__")


BY_ARROW = ("__arrow_c_array__", "__arrow_c_stream__")


BUFFERS = (memoryview, array.array)


_UNITS = ("unit", "units")


def has_own_attributes(value: Any) -> bool:
    """Return whether objects of one class can differ in what they offer."""
    try:
        return type(value.__dict__) is dict
    except Exception:
        return False


PASS_MAGNITUDE = "Convert it to the units that you want first, then pass its magnitude without units, such as x.value."


def offers(value: Any, names: str | tuple[str, ...]) -> bool:
    """Return whether an object has one of these attributes, without running any of its code."""
    names = (names,) if isinstance(names, str) else names
    own = value.__dict__ if has_own_attributes(value) else ()
    return any(name in own or class_attribute(type(value), name) is not None for name in names)


def read_values(x: Any, *others: Callable[[Any], Any]) -> Any:
    """Read the values of an object into a NumPy array by the protocols that it offers.

    Args:
        x: the object.
        others: other ways to try after these.

    Raises:
        ConversionError: there is no way, or units or a mask would be lost.
    """
    import numpy

    name = type_name(x)
    refuse_more_than_values(x)
    failures: list[Exception] = []
    for way in (*_ways(x), *others):
        try:
            values = way(x)
            if isinstance(values, numpy.ndarray) and values.dtype != object:
                refuse_more_than_values(values)
                return numpy.asarray(values)
            failures.append(TypeError(f"a {type(values).__qualname__} was returned"))
        except (MemoryError, ConversionError):
            raise
        except Exception as error:
            failures.append(error)
    why = f" ({describe_error(failures[0])})" if failures else ""
    raise ConversionError(
        f"a value of type {name} offers no array of numbers{why}",
        remedy="Make a NumPy array of it with its own library, or write a plugin for that library.",
    ) from (failures[0] if failures else None)


def refuse_more_than_values(x: Any) -> None:
    """Raise for an array, or an object that could become one, that has units or masked elements.

    Raises:
        ConversionError: the units or the mask would be lost.
    """
    if has_units(x):
        raise ConversionError(
            f"a value of type {type_name(x)} has units, which would be lost",
            remedy=PASS_MAGNITUDE,
        )
    if _is_masked(x):
        raise ConversionError(
            f"a value of type {type_name(x)} has masked elements, and its mask would be lost",
            remedy="Fill in what is masked first, as x.filled(value) does, or convert its data and its mask.",
        )


def has_units(x: Any) -> bool:
    return offers(x, _UNITS) and any(getattr(x, name, None) is not None for name in _UNITS)


def _ways(x: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield functions for the protocols that an object offers."""
    import numpy

    if offers(x, "__dlpack__"):
        yield numpy.from_dlpack
    if offers(x, "__array__"):
        yield lambda x: x.__array__()  # asarray would drop a mask
    if issubclass(type(x), BUFFERS) or offers(x, (*BY_NUMPY[1:], "__buffer__")):
        yield numpy.asarray
    if offers(x, "__arrow_c_array__"):  # reading a stream would use it up
        yield _by_arrow


def _is_masked(x: Any) -> bool:
    """Return whether an object has a mask that hides some of its elements."""
    import numpy

    mask = numpy.asarray(getattr(x, "mask", False))
    return mask.dtype == bool and bool(mask.any())


def type_name(value: Any) -> str:
    cls = type(value)
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


def _by_arrow(x: Any) -> Any:
    import pyarrow

    column = pyarrow.array(x)
    if column.null_count or getattr(column.type, "tz", None) is not None:
        raise ValueError("it has missing values or a time zone")
    return column.to_numpy(zero_copy_only=False)
