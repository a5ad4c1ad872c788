"""Lazy arrays are computed together, by the scheduler or the cluster that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arrayferry import ConversionError

from .graphs import futures_of, owner_of


def compute(xs: Sequence[Any]) -> Sequence[Any]:
    """Compute several arrays together, so that common parts are computed once."""
    import dask

    if not xs:
        return []
    try:
        client = owner_of([future for x in xs for future in futures_of(x.__dask_graph__())])
        if client is None:
            scheduler_of(xs)
        options = {} if client is None else {"scheduler": client}
        return dask.compute(*xs, **options)  # type: ignore[no-any-return]
    except (MemoryError, ConversionError):
        raise
    except Exception as error:
        which = "a Dask array" if len(xs) == 1 else f"one of {len(xs)} Dask arrays"
        raise ConversionError(
            f"{which} could not be computed ({type(error).__name__}: {error})",
            remedy="The error is in its graph: x.compute() raises it too.",
        ) from error


def scheduler_of(xs: Sequence[Any]) -> Any:
    """Return the scheduler that Dask chooses for some collections.

    Raises:
        ConversionError: it is an asynchronous client, which would wait for itself in its event loop.
    """
    import dask

    try:
        get = dask.base.get_scheduler(collections=list(xs))
    except RuntimeError as error:  # newer versions of Dask refuse it too
        if "asynchronous" not in str(error):
            raise
    else:
        if not getattr(getattr(get, "__self__", None), "asynchronous", False):
            return get
    raise ConversionError(
        "Dask arrays cannot be computed here: the current client is asynchronous",
        remedy="Do it in another thread, as by asyncio.to_thread, or convert the result of `await client.compute(x)`.",
    )
