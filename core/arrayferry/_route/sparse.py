"""The rule for sparse arrays: they are made dense only if that is asked for."""

from __future__ import annotations

from typing import Any

from arrayferry._errors import ConversionError, CopyRequiredError
from arrayferry._options import Options
from arrayferry._plugin.call import describe_array
from arrayferry._plugin.origin import Origin

from .memory import PASS_COPY

__all__ = ["check_sparse"]


def check_sparse(x: Any, source: Origin, options: Options) -> None:
    """Check that a sparse array may be made dense.

    Raises:
        ConversionError: it may not.
        CopyRequiredError: `copy=False` was given.
    """
    if options.sparse != "dense":
        method = next((m for m in ("to_dense", "todense", "toarray") if hasattr(x, m)), "")
        call = f", or call x.{method}() first" if method else ""
        raise ConversionError(
            f"{describe_array(x)} is sparse", remedy=f'Pass sparse="dense" to make it dense{call}.'
        )
    if options.copy is False:
        raise CopyRequiredError("memory of a sparse array cannot be shared", remedy=PASS_COPY)
