"""The module that Dask loads in each process by an entry point, so that blocks of other libraries work in it."""

from importlib.metadata import entry_points
from typing import Any


def know_lazily(sizeof: Any) -> None:
    """Register the arrays of a library with Dask when it first needs the size of such an array.

    Workers need the size of each value, so each worker registers the arrays in time.

    Args:
        sizeof: Dask's function for sizes, with its registry.
    """
    plugins = entry_points(group="arrayferry")
    others = {plugin.name for plugin in plugins if plugin.dist and plugin.dist.name != "arrayferry"}
    for library in {"jax", "torch", *others} - set(getattr(sizeof, "_lazy", ())):
        sizeof.register_lazy(library, _know)


def _know() -> None:
    from .dask_.chunks import know_blocks

    know_blocks()
