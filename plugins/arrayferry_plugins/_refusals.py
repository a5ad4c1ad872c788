"""Shared by the plugins of tables and others: arrays that are refused, and what to call first."""

from __future__ import annotations

from typing import Any

from arrayferry import ConversionError, UnsupportedDtypeError


def refused(what: str, first: str, dtype: Any = None) -> ConversionError:
    """Return the error for an array that can be converted after a call, which may be due to its dtype."""
    reason, remedy = f"{what} cannot be converted", f"Call {first} first."
    if dtype is None:
        return ConversionError(reason, remedy=remedy)
    return UnsupportedDtypeError(reason, remedy=remedy, dtype=str(dtype))
