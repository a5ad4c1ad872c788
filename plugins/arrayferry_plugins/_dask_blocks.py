"""Dask loads this module in each process by an entry point, so that it can join blocks of other libraries."""

from importlib.metadata import entry_points
from typing import Any


def know_lazily(sizeof: Any) -> None:
    """Register the functions that join blocks when Dask first needs the size of an array of a library.

    Workers need the size of each value, so each worker registers the functions before it joins blocks.

    Args:
        sizeof: the dispatch object `dask.sizeof.sizeof`.
    """
    entries = entry_points(group="arrayferry")
    others = {plugin.name for plugin in entries if plugin.dist and plugin.dist.name != "arrayferry"}
    for library in {"jax", "torch", *others} - set(getattr(sizeof, "_lazy", ())):
        sizeof.register_lazy(library, _know)


def _know() -> None:
    from .dask_.chunks import know_blocks

    know_blocks()
