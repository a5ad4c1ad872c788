"""The general path between any two backends, through a NumPy array in host memory, and its copy rule.

Whether the NumPy array must be copied follows from what both backends promise about their memory. No
flag of a framework is trusted here: memory is known to be private only if it was allocated here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from arrayferry._errors import ContractError, CopyRequiredError
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend
from arrayferry._plugin.origin import Origin
from arrayferry._tree.values import refuse_more_than_values

from .memory import overlap, unsafe_to_share
from .narrowing import fit_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PASS_COPY", "Held", "from_host", "to_host"]


class Held(NamedTuple):
    """An array between two steps, and what is known about its memory.

    Attributes:
        value: an array of the backend that the last step led to.
        private: whether nobody else holds its memory.
        constant: whether a library promises that the values in its memory never change.
    """

    value: Any
    private: bool = False
    constant: bool = False


def to_host(x: Any, source: Origin, device_is_host: bool, values: Any = None) -> Held:
    """Read the values of an array into NumPy.

    Args:
        x: the array.
        source: its backend.
        device_is_host: whether it is in host memory; if not, the result is a copy.
        values: the result of `source.to_numpy(x)`, if that was called already.
    """
    import numpy as np

    n = call_backend(source, "to_numpy", x) if values is None else values
    if not isinstance(n, np.ndarray):
        raise ContractError(
            f"to_numpy() of the backend {source.name!r} returned a {type(n).__name__}",
            duty="It must return a numpy.ndarray.",
            method="to_numpy",
        )
    if type(n) is not np.ndarray:
        refuse_more_than_values(n)
        if source.name != "numpy":
            n = np.asarray(n)
    constant = source.memory in ("immutable", "lazy")
    private = source.to_numpy_shares is False or (not device_is_host and n.flags.writeable)
    return Held(n, private, constant and not private)


def from_host(
    held: Held, x: Any, source: Origin, target: Backend, device: Any, options: Options
) -> Held:
    """Make an array of a library from a NumPy array, under the copy rule and the narrowing rule.

    Args:
        held: the NumPy array. It is not changed.
        x: the array that its values were read from, to check whether memory is shared.
        source: the backend of `x`.
        target: the backend of the result.
        device: as `Backend.from_numpy` takes it.
        options: `copy` and `narrowing` are used.
    """
    import numpy as np

    n: np.ndarray[Any, Any] = fit_dtype(held.value, target, options.narrowing)
    private = held.private or n is not held.value
    readonly = not n.flags.writeable
    if target.name != "numpy":
        n, copied = _plain(n)
        private = private or copied
    unsafe = unsafe_to_share(source, target, constant=held.constant, readonly=readonly)
    if options.copy is False:
        if unsafe:
            raise CopyRequiredError(f"memory cannot be shared: {unsafe}", remedy=PASS_COPY)
        if held.constant:
            n = _read_only(n)
        return Held(_shared(n, x, private, source, target, device), constant=held.constant)
    unknown = "unknown" in (source.memory, target.memory)
    copying = options.copy is True or unsafe or unknown
    if copying and not private and target.from_numpy_shares is not False:
        n = np.array(n, copy=True, order="K", subok=False)
        private = True
    elif held.constant and not private:
        n = _read_only(n)
    y = call_backend(target, "from_numpy", n, device)
    return Held(y, private or target.from_numpy_shares is False, held.constant)


PASS_COPY = "Pass copy=None to allow a copy."


def _read_only(n: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array that cannot be written to."""
    if n.flags.writeable:
        n = n.view()
        n.flags.writeable = False
    return n


def _plain(n: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], bool]:
    """Return an array that every library accepts, and whether it is a copy.

    It is of the base class, in native byte order, aligned, and has no negative strides. Of several equal
    dtypes, it has the usual one.
    """
    import numpy as np

    if type(n) is not np.ndarray:
        n = n.view(np.ndarray)
    if not n.dtype.isnative:
        return n.astype(n.dtype.newbyteorder("=")), True
    if n.dtype.char in "qQ":  # long long, where long has the same size
        n = n.view(f"{n.dtype.kind}8")
    if n.flags.aligned:
        size = n.itemsize or 1
        if all(stride >= 0 and stride % size == 0 for stride in n.strides):
            return n, False
        if n.flags.c_contiguous:  # strides of axes that are never walked along may be anything
            return n.reshape(-1).reshape(n.shape), False
    return np.array(n, copy=True, order="C"), True


def _shared(
    n: np.ndarray[Any, Any], x: Any, private: bool, source: Origin, target: Backend, device: Any
) -> Any:
    """Make an array of the target without a copy, and check that there was none."""
    why = "its strides, alignment or byte order had to be changed" if private else ""
    if not why and not overlap(call_backend(source, "to_numpy", x), n):
        why = f"{source.name} returns its values as a copy"
    if not why and target.from_numpy_shares is False:
        why = f"{target.name} copies the values"
    if not why:
        y = call_backend(target, "from_numpy", n, device)
        if overlap(call_backend(target, "to_numpy", y), n):
            return y
        why = f"{target.name} copied the values"
    raise CopyRequiredError(f"memory cannot be shared: {why}", remedy=PASS_COPY)
