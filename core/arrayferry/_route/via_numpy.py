"""The general path between any two backends, through a NumPy array in host memory.

Whether the NumPy array must be copied follows from what both backends guarantee about their memory. Flags of
arrays are not enough, since other code may use any memory that arrayferry did not allocate itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, wrong_result
from arrayferry._plugin.origin import Origin
from arrayferry._tree.values import refuse_more_than_values
from arrayferry._types import AnyArray, AnyTree, Device

from .memory import COPIED, copy_required, decide, never_changes, overlap
from .narrowing import fit_dtype

if TYPE_CHECKING:
    import numpy as np


class RoutedArray(NamedTuple):
    """An array between two steps of a route.

    Attributes:
        value: an array of the backend at the end of the last step.
        copied: the reason why the memory of the value is a copy, or "" if it is the source's own memory.
    """

    value: Any
    copied: str = ""


def to_host(
    x: AnyArray, source: Origin, options: Options, on_host: bool, values: AnyTree = None
) -> RoutedArray:
    """Read the values of an array into NumPy.

    Args:
        x: the array.
        source: the backend of the array.
        options: the options of the conversion. Only `copy` is used.
        on_host: whether the array is in host memory. If False, a writable result counts as a copy.
        values: the result of `source.to_numpy(x)`, or None if `to_numpy` was not called yet.
    """
    import numpy as np

    host_array = _read(x, source, values)
    if type(host_array) is not np.ndarray:
        refuse_more_than_values(host_array)
        if source.name != "numpy":
            host_array = np.asarray(host_array)
    is_copy = source.to_numpy_shares is False or (not on_host and host_array.flags.writeable)
    reason = f"{source.name} only returns copies of the values of its arrays"
    if options.copy is False and (is_copy or not overlap(_read(x, source), host_array)):
        raise copy_required(reason)
    return RoutedArray(host_array, reason if is_copy else "")


def from_host(
    array: RoutedArray, source: Origin, target: Backend, device: Device, options: Options
) -> RoutedArray:
    """Make an array of a library from a NumPy array, as the options `copy` and `narrowing` say.

    Args:
        array: the NumPy array. It is not changed.
        source: the backend of the array at the start of the route.
        target: the backend of the result.
        device: the device of the result, as `Backend.from_numpy` accepts it.
        options: the options of the conversion.
    """
    import numpy as np

    host_array: np.ndarray[Any, Any] = array.value
    was_changed, is_readonly = False, not host_array.flags.writeable
    if target.name != "numpy":  # NumPy itself has all dtypes and accepts all arrays
        host_array = fit_dtype(host_array, target, options.narrowing)
        was_changed, is_readonly = host_array is not array.value, not host_array.flags.writeable
        host_array, is_copy = _plain(host_array)
        was_changed = was_changed or is_copy
    copy_reason = array.copied
    if was_changed:
        copy_reason = "its dtype, strides, alignment or byte order had to be changed"
    sharing = decide(source, target, options.copy, readonly=is_readonly, copied=copy_reason)
    if sharing == "copy" and target.from_numpy_shares is not False:
        host_array = np.array(host_array, copy=True, order="K", subok=False)
        copy_reason = COPIED
    elif never_changes(source) and not copy_reason and host_array.flags.writeable:
        host_array = host_array.view()
        host_array.flags.writeable = False
    target_copies = target.from_numpy_shares is False
    if target_copies and options.copy is False:
        raise copy_required(f"{target.name} copies the values")
    if target.name == "numpy":
        return RoutedArray(host_array, copy_reason)
    y = call_backend(target, "from_numpy", host_array, device)
    if options.copy is False and not overlap(_read(y, target), host_array):
        raise copy_required(f"{target.name} copied the values")
    return RoutedArray(y, copy_reason or (COPIED if target_copies else ""))


def _read(x: AnyArray, origin: Origin, values: AnyTree = None) -> Any:
    import numpy as np

    numpy_array = call_backend(origin, "to_numpy", x) if values is None else values
    if not isinstance(numpy_array, np.ndarray):
        actual_type = f"a {type(numpy_array).__name__}"
        raise wrong_result(origin, "to_numpy", actual_type, "It must return a numpy.ndarray.")
    return numpy_array


def _plain(n: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], bool]:
    """Return an array that every library accepts, and whether it is a copy.

    The result is a `numpy.ndarray` and not a subclass, aligned, in native byte order, and without negative strides. Of
    several equal dtypes, such as `long` and `long long`, it has the usual dtype.
    """
    import numpy as np

    if type(n) is not np.ndarray:
        n = n.view(np.ndarray)
    if not n.dtype.isnative:
        return n.astype(n.dtype.newbyteorder("=")), True
    if n.dtype.char in "qQ":  # `long long`: use the usual dtype of the same size
        n = n.view(f"{n.dtype.kind}8")
    if n.flags.aligned:
        item_size = n.itemsize or 1
        if all(stride >= 0 and stride % item_size == 0 for stride in n.strides):
            return n, False
        if n.flags.c_contiguous:  # reshape() corrects the strides of axes of length 1
            return n.reshape(-1).reshape(n.shape), False
    return np.array(n, copy=True, order="C"), True
