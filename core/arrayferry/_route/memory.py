"""Memory: whether two arrays share it, and whether they may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arrayferry._plugin.origin import Origin

if TYPE_CHECKING:
    import numpy as np

__all__ = ["addresses", "overlap", "share_memory", "unsafe_to_share"]


def unsafe_to_share(source: Origin, target: Origin, *, constant: bool, readonly: bool) -> str:
    """Return why `target` must not share memory of `source`, "" if it may."""
    writes = target.memory in ("writable", "unknown") and target.name != "numpy"
    if writes and constant:
        return f"{source.name} arrays never change, but {target.name} could write to them"
    if writes and readonly:
        return f"the array is read-only, but {target.name} could write to it"
    if target.memory in ("immutable", "lazy") and not constant:
        return f"{target.name} arrays never change, but the {source.name} array can be written to"
    return ""


def addresses(x: Any, source: Origin, y: Any, target: Origin) -> tuple[int, int]:
    """Return the addresses of the first elements of two arrays, 0 where that is not known or there is none."""

    def of(array: Any, origin: Origin) -> int:
        try:
            return origin.address(array) or 0
        except Exception:
            return 0

    return of(x, source), of(y, target)


def share_memory(x: Any, source: Origin, y: Any, target: Origin) -> bool:
    """Tell whether an array of one backend uses the memory of one of another, as far as that is known."""
    try:
        at = source.address(x), target.address(y)
        if None not in at:
            return at[0] == at[1] != 0
        if not (source.to_numpy_shares and target.to_numpy_shares):
            return False
        a, b = source.to_numpy(x), target.to_numpy(y)
        return a.size > 0 and overlap(a, b)
    except Exception:  # it is only a check
        return False


def overlap(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Tell whether two arrays of the same values use the same memory; empty ones always do."""
    import numpy as np

    return a.size == 0 or (
        np.may_share_memory(a, b)
        and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    )
