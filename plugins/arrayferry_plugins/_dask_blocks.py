"""What Dask loads in each process, by an entry point: it knows arrays of other libraries where they arrive."""

from importlib.metadata import entry_points
from typing import Any


def know_lazily(sizeof: Any) -> None:
    """Know the arrays of a library once the size of the first one is asked for, as for each value that a worker gets.

    Args:
        sizeof: what Dask has for sizes.
    """
    plugins = entry_points(group="arrayferry")
    others = {plugin.name for plugin in plugins if plugin.dist and plugin.dist.name != "arrayferry"}
    for library in {"jax", "torch", *others} - set(getattr(sizeof, "_lazy", ())):
        sizeof.register_lazy(library, _know)


def _know() -> None:
    from .dask_.chunks import know_blocks

    know_blocks()
