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

    n = _read(x, source, values)
    if type(n) is not np.ndarray:
        refuse_more_than_values(n)
        if source.name != "numpy":
            n = np.asarray(n)
    copied = source.to_numpy_shares is False or (not on_host and n.flags.writeable)
    reason = f"{source.name} only returns copies of the values of its arrays"
    if options.copy is False and (copied or not overlap(_read(x, source), n)):
        raise copy_required(reason)
    return RoutedArray(n, reason if copied else "")


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

    n: np.ndarray[Any, Any] = array.value
    changed, readonly = False, not n.flags.writeable
    if target.name != "numpy":  # NumPy itself has all dtypes and accepts all arrays
        n = fit_dtype(n, target, options.narrowing)
        changed, readonly = n is not array.value, not n.flags.writeable
        n, plain = _plain(n)
        changed = changed or plain
    copied = array.copied
    if changed:
        copied = "its dtype, strides, alignment or byte order had to be changed"
    sharing = decide(source, target, options.copy, readonly=readonly, copied=copied)
    if sharing == "copy" and target.from_numpy_shares is not False:
        n = np.array(n, copy=True, order="K", subok=False)
        copied = COPIED
    elif never_changes(source) and not copied and n.flags.writeable:
        n = n.view()
        n.flags.writeable = False
    copies = target.from_numpy_shares is False
    if copies and options.copy is False:
        raise copy_required(f"{target.name} copies the values")
    if target.name == "numpy":
        return RoutedArray(n, copied)
    y = call_backend(target, "from_numpy", n, device)
    if options.copy is False and not overlap(_read(y, target), n):
        raise copy_required(f"{target.name} copied the values")
    return RoutedArray(y, copied or (COPIED if copies else ""))


def _read(x: AnyArray, origin: Origin, values: AnyTree = None) -> Any:
    import numpy as np

    n = call_backend(origin, "to_numpy", x) if values is None else values
    if not isinstance(n, np.ndarray):
        actual = f"a {type(n).__name__}"
        raise wrong_result(origin, "to_numpy", actual, "It must return a numpy.ndarray.")
    return n


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
        size = n.itemsize or 1
        if all(stride >= 0 and stride % size == 0 for stride in n.strides):
            return n, False
        if n.flags.c_contiguous:  # reshape() corrects the strides of axes of length 1
            return n.reshape(-1).reshape(n.shape), False
    return np.array(n, copy=True, order="C"), True
