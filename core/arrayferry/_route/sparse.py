"""The rule for sparse arrays: they are made dense only if that is asked for."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from arrayferry._errors import ConversionError, CopyRequiredError
from arrayferry._options import Options
from arrayferry._plugin.call import describe_array
from arrayferry._plugin.origin import Origin

from .via_numpy import PASS_COPY

__all__ = ["check_sparse"]

CROSSED_BEFORE = ("sparse", "dask")
"""Libraries whose arrays became dense before there was a rule. In the next release, they are refused too."""


def check_sparse(x: Any, source: Origin, options: Options) -> None:
    """Check that a sparse array may be made dense.

    Raises:
        ConversionError: it may not.
        CopyRequiredError: `copy=False` was given.
    """
    if options.sparse is None and source.name in CROSSED_BEFORE:
        warnings.warn(
            f"{describe_array(x)} is sparse, and is made dense. In the next release that will be an error: pass "
            'sparse="dense" if it is what you want',
            DeprecationWarning,
            stacklevel=_frames_of_ours(),
        )
    elif options.sparse != "dense":
        method = next((m for m in ("to_dense", "todense", "toarray") if hasattr(x, m)), "")
        call = f", or call x.{method}() first" if method else ""
        raise ConversionError(
            f"{describe_array(x)} is sparse", remedy=f'Pass sparse="dense" to make it dense{call}.'
        )
    if options.copy is False:
        raise CopyRequiredError("memory of a sparse array cannot be shared", remedy=PASS_COPY)


def _frames_of_ours() -> int:
    """Count the frames from the caller up to the first that is not of this package."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame):
        frame, count = frame.f_back, count + 1
    return count


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return name.startswith("arrayferry") or frame.f_code.co_filename.startswith("<arrayferry")
