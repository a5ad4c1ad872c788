"""The rule for whether two arrays may share memory, and checks of whether they share memory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from arrayferry._errors import CopyRequiredError
from arrayferry._plugin.origin import Origin
from arrayferry._types import AnyArray

if TYPE_CHECKING:
    import numpy as np

CONSTANT = ("immutable", "lazy")
"""The values of `memory` for libraries whose arrays never change."""
COPIED = "a copy is made on the way"


def decide(
    source: Origin,
    target: Origin,
    copy: bool | None,
    *,
    readonly: bool = False,
    copied: str = "",
) -> Literal["share", "copy"]:
    """Decide whether an array of `target` may use the memory of an array of `source`, or needs a copy.

    Args:
        source: the backend or source that the memory belongs to.
        target: the backend that would use this memory.
        copy: the option `copy`: True, False or None.
        readonly: whether the array of `source` is read-only, even if other arrays of `source` are writable.
        copied: the reason why the memory is a copy, or "" if it is the source's own memory.

    Raises:
        CopyRequiredError: `copy` is False, and the array has been or must be copied.
    """
    reason = _promise_broken(source, target, readonly) or copied
    if copy is False:
        if reason:
            raise copy_required(reason)
        return "share"
    memory_unknown = "unknown" in (source.memory, target.memory)
    return "copy" if not copied and (copy or reason or memory_unknown) else "share"


def _promise_broken(source: Origin, target: Origin, readonly: bool) -> str:
    """Return the promise that would be broken if `target` used memory of `source`, or "" if none would be broken."""
    target_writes = target.memory in ("writable", "unknown") and target.name != "numpy"
    source_constant = source.memory in CONSTANT
    if target_writes and source_constant:
        return f"{source.name} arrays never change, but {target.name} could write to them"
    if target_writes and readonly:
        return f"the array is read-only, but {target.name} could write to it"
    if not target_writes and not source_constant and target.memory in CONSTANT:
        return f"{target.name} arrays never change, but the {source.name} array can be written to"
    return ""


def never_changes(origin: Origin) -> bool:
    """Return whether a library promises that the values of its arrays never change."""
    return origin.memory in CONSTANT


def copy_required(reason: str) -> CopyRequiredError:
    """Return the error for an array that cannot be converted with `copy=False`."""
    return CopyRequiredError(
        f"memory cannot be shared: {reason}", remedy="Pass copy=None to allow a copy."
    )


def address_of(origin: Origin, x: AnyArray) -> int:
    """Return the address of the first element of an array, or 0 for an empty array or an unknown address."""
    try:
        return origin.address(x) or 0
    except Exception:
        return 0


def share_memory(
    x: AnyArray, source: Origin, y: AnyArray, target: Origin, *, reads: bool | None = None
) -> bool | None:
    """Return whether two arrays of the same values use the same memory, or None if this is not known.

    `reads` says whether to read both arrays into NumPy if an address is not known. By default, they are read if
    `to_numpy` copies neither of them.
    """
    addresses = address_of(source, x), address_of(target, y)
    if all(addresses):
        return addresses[0] == addresses[1]
    if reads is None:
        reads = bool(source.to_numpy_shares and target.to_numpy_shares)
    if reads:
        with suppress(Exception):  # an error of this check must not stop the conversion
            a, b = source.to_numpy(x), target.to_numpy(y)
            return True if a.size and overlap(a, b) else None
    return None


def overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Return whether two arrays of the same values use the same memory. The result is True for empty arrays."""
    import numpy as np

    return a.size == 0 or (
        np.may_share_memory(a, b)
        and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    )


def runs_backwards(x: AnyArray) -> bool:
    """Return whether an array has a negative stride. PyTorch ends the process if it loads such an array."""
    strides = getattr(x, "strides", None)
    return isinstance(strides, tuple) and any(stride < 0 for stride in strides)
