"""Lazy arrays are computed together, by the scheduler or the cluster that they belong to.

The futures in their graphs are found without materializing the whole graph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from arrayferry import ConversionError


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


def owner_of(futures: Sequence[Any]) -> Any:
    """Return a client of the cluster that has the results of some futures, None if there are no futures.

    Raises:
        ConversionError: one has no result, or they belong to several clusters.
    """
    for future in futures:
        _refuse_failed(future)
    clients = [future.client for future in reversed(futures)]
    clusters = {client.scheduler.address: client for client in clients}
    if len(clusters) > 1:
        raise ConversionError(
            f"results of {len(clusters)} clusters cannot be computed together",
            remedy="Convert each by itself first.",
        )
    return next(iter(clusters.values()), None)


def persisted(graph: Any) -> dict[Any, Any]:
    """Return the parts of a graph that are futures."""
    return {
        key: part
        for layer in _materialized(graph)
        for key, part in layer.items()
        if is_future(part)
    }


def futures_of(graph: Any) -> list[Any]:
    """Return the futures that are parts of a graph, or arguments of its tasks."""
    if "distributed.client" not in sys.modules:
        return []
    waiting = [task for layer in _materialized(graph) for task in layer.values()]
    waiting += [list(getattr(layer, "indices", ())) for layer in _layers(graph)]
    futures: list[Any] = []
    while waiting:
        part = waiting.pop()
        if is_future(part):
            futures.append(part)
        elif isinstance(part, (list, tuple, set, frozenset)):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
        elif getattr(part, "dependencies", None) and hasattr(part, "args"):  # others have none
            waiting += [*part.args, *part.kwargs.values()]
    return futures


def _layers(graph: Any) -> Iterable[Any]:
    return getattr(graph, "layers", {"": graph}).values()


def _materialized(graph: Any) -> list[Any]:
    """Return the layers of a graph whose tasks exist already."""
    from dask.highlevelgraph import MaterializedLayer

    return [layer for layer in _layers(graph) if isinstance(layer, (MaterializedLayer, dict))]


def is_future(x: Any) -> bool:
    """Return whether a value is a `Future` of a cluster, without importing anything."""
    distributed = sys.modules.get("distributed.client")
    # another thread may be importing it just now
    return isinstance(x, getattr(distributed, "Future", ()))


def _refuse_failed(future: Any) -> None:
    """Raise if a future has no result and will have none."""
    client, cause = future.client, None
    if client is None or client.status == "closed":
        why, remedy = "it has no open client", "Convert it before its client is closed."
    elif client.asynchronous:
        why = "its client is asynchronous"
        remedy = "Convert the result of `await client.compute(x)`."
    elif future.status == "error":
        cause = future.exception()
        why = f"its task raised {type(cause).__name__}: {cause}"
        remedy = "future.result() raises the error too."
    elif future.status in ("cancelled", "lost"):
        why, remedy = f"it is {future.status}", "Submit its task again."
        if hasattr(future, "why_lost"):  # it was not made by a task
            why, remedy = future.why_lost()
    else:
        return
    raise ConversionError(f"a Dask Future has no result: {why}", remedy=remedy) from cause
