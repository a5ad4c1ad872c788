"""Host memory: the general way between any two backends, and the copy rule on it.

Values leave one library as a NumPy array and enter another from it. Whether the array in between
must be copied follows from what both sides promise about their memory. Nothing here trusts a flag
of a framework: memory is known to be private only if it was made here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ._dtypes import fit_dtype
from ._errors import ConversionError, CopyRequiredError

if TYPE_CHECKING:
    import numpy as np

    from ._backend import Backend
    from ._options import Options

__all__ = ["PASS_COPY", "Held", "enter", "leave", "promise_broken"]


class Held(NamedTuple):
    """A value on its way, and what is known of its memory.

    Attributes:
        value: an array of the backend that it has reached.
        private: whether nobody else holds its memory.
        constant: whether a library promised that the values in its memory never change.
    """

    value: Any
    private: bool = False
    constant: bool = False


def promise_broken(source: Backend, target: Backend, *, constant: bool, readonly: bool) -> str:
    """Say what promise would be broken if `target` shared memory that `source` gave, "" if none."""
    writes = target.memory in ("writable", "unknown") and target.name != "numpy"
    if writes and (constant or readonly):
        whose = source.name if constant else "the read-only array"
        return f"{whose} promises that the values never change, and {target.name} could write them"
    if target.memory in ("immutable", "lazy") and not constant:
        return f"{target.name} promises that its values never change, and they could be written through the {source.name} array"
    return ""


def leave(x: Any, source: Backend, device_is_host: bool, values: Any = None) -> Held:
    """Bring the values of an array out into NumPy.

    Args:
        x: the array.
        source: its backend.
        device_is_host: whether it lies in host memory; if not, what arrives is a copy.
        values: what `source.to_numpy(x)` gave, if it was called already.
    """
    import numpy as np

    n = source.to_numpy(x) if values is None else values
    if not isinstance(n, np.ndarray):
        raise ConversionError(
            f"to_numpy of the backend {source.name} gave a {type(n).__name__}",
            remedy="It must give a numpy.ndarray; tell the plugin's author.",
        )
    constant = source.memory in ("immutable", "lazy")
    private = source.to_numpy_shares is False or (not device_is_host and n.flags.writeable)
    return Held(n, private, constant and not private)


def enter(
    held: Held, x: Any, source: Backend, target: Backend, device: Any, options: Options
) -> Held:
    """Bring a NumPy array into a library, under the copy rule and the narrowing rule.

    Args:
        held: the NumPy array; its `value` is looked at, not changed.
        x: the array that it came from, to prove by that memory is shared.
        source: the backend of `x`.
        target: the backend to enter.
        device: as `Backend.from_numpy` takes it.
        options: of them, `copy` and `narrowing` count here.
    """
    import numpy as np

    n: np.ndarray[Any, Any] = fit_dtype(held.value, target, options.narrowing)
    private = held.private or n is not held.value
    readonly = not n.flags.writeable
    if target.name != "numpy":
        n, copied = _plain(n)
        private = private or copied
    broken = promise_broken(source, target, constant=held.constant, readonly=readonly)
    if options.copy is False:
        if broken:
            raise CopyRequiredError(f"memory cannot be shared: {broken}", remedy=PASS_COPY)
        return Held(_shared(n, x, private, source, target, device), constant=held.constant)
    unknown = "unknown" in (source.memory, target.memory)
    wanted = options.copy is True or broken or unknown
    if wanted and not private and target.from_numpy_shares is not False:
        n = np.array(n, copy=True, order="K", subok=False)
        private = True
    elif held.constant and not private and n.flags.writeable:
        n = n.view()
        n.flags.writeable = False
    y = target.from_numpy(n, device)
    return Held(y, private or target.from_numpy_shares is False, held.constant)


PASS_COPY = "Pass copy=None to let it be copied."


def _plain(n: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], bool]:
    """An array that every library can take, and whether it had to be copied for that.

    Base class, native byte order, the usual one of several equal dtypes, aligned, strides forward.
    """
    import numpy as np

    if type(n) is not np.ndarray:
        n = n.view(np.ndarray)
    if not n.dtype.isnative:
        return n.astype(n.dtype.newbyteorder("=")), True
    if n.dtype.char in "qQ":  # long long, where long is as long
        n = n.view(f"{n.dtype.kind}8")
    if n.flags.aligned:
        size = n.itemsize or 1
        if all(stride >= 0 and stride % size == 0 for stride in n.strides):
            return n, False
        if n.flags.c_contiguous:  # strides of axes that are never walked along may be anything
            return n.reshape(-1).reshape(n.shape), False
    return np.array(n, copy=True, order="C"), True


def _shared(
    n: np.ndarray[Any, Any], x: Any, private: bool, source: Backend, target: Backend, device: Any
) -> Any:
    """Enter the target without a copy, and prove that there was none."""
    why = "the values had to be made anew to be carried" if private else ""
    if not why and not _overlap(source.to_numpy(x), n):
        why = f"{source.name} gives its values out as a copy"
    if not why and target.from_numpy_shares is False:
        why = f"{target.name} takes values in as a copy"
    if not why:
        y = target.from_numpy(n, device)
        if _overlap(target.to_numpy(y), n):
            return y
        why = f"{target.name} took the values in as a copy"
    raise CopyRequiredError(f"memory cannot be shared: {why}", remedy=PASS_COPY)


def _overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays of the same values look at the same memory; empty ones always do."""
    import numpy as np

    return a.size == 0 or (
        np.may_share_memory(a, b)
        and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    )
