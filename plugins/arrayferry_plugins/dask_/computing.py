"""Computes several Dask arrays together, by the current scheduler or by the cluster that has their futures' results.

The futures in a graph are found without materializing the whole graph. Computed values are returned in memory that
nothing else uses.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from arrayferry import ConversionError, backend_of, convert, registry
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_plugins._sources import refused


def compute(xs: Sequence[Any]) -> Sequence[Any]:
    """Compute several arrays together. Tasks that several arrays need are computed once."""
    import dask

    if not xs:
        return []
    try:
        originals, xs = xs, [*map(without_planning, xs)]
        futures = [future for x in xs for future in futures_of(x.__dask_graph__())]
        if not futures:
            scheduler_of(xs)
        client = owner_of(futures) if futures else None
        options = {} if client is None else {"scheduler": client}
        should_optimize = xs[0] is originals[0]
        return dask.compute(*xs, optimize_graph=should_optimize, **options)  # type: ignore[no-any-return]
    except (MemoryError, ConversionError):
        raise
    except Exception as error:
        arrays_text = "a Dask array" if len(xs) == 1 else f"one of {len(xs)} Dask arrays"
        raise ConversionError(
            f"{arrays_text} could not be computed ({type(error).__name__}: {error})",
            remedy="To find the task that fails, call x.compute(), which raises the same error.",
        ) from error


def without_planning(x: AnyArray) -> Any:
    """Return an array of Dask's query planning as a `dask.array.core.Array`, which has a graph.

    The graph is not optimized: an optimization would change the tasks of keys that a cluster may know already.
    """
    from dask.array.core import Array

    if isinstance(x, Array):
        return x
    lowered_expr = x.expr.lower_completely()
    graph = lowered_expr.__dask_graph__()
    return Array(graph, lowered_expr.name, x.chunks, dtype=object)  # nothing reads this dtype


def scheduler_of(xs: Sequence[Any]) -> Any:
    """Return the scheduler that Dask chooses for some collections.

    Raises:
        ConversionError: the scheduler is an asynchronous client. To wait for it here would block its event loop.
    """
    import dask

    try:
        scheduler = dask.base.get_scheduler(collections=list(xs))
    except RuntimeError as error:  # newer versions of Dask raise for an asynchronous client
        if "asynchronous" not in str(error):
            raise
    else:
        if not getattr(getattr(scheduler, "__self__", None), "asynchronous", False):
            return scheduler
    raise ConversionError(
        "Dask arrays cannot be computed here: the current client is asynchronous",
        remedy="Convert in another thread (asyncio.to_thread), or convert the result of `await client.compute(x)`.",
    )


def owner_of(futures: Sequence[Any]) -> Any:
    """Return a client of the cluster that has the results of some futures, or None if there are no futures.

    Raises:
        ConversionError: a future has no usable result, or the futures belong to several clusters.
    """
    clients = [_client_of(future) for future in reversed(futures)]
    clients_by_address = {client.scheduler.address: client for client in clients}
    if len(clients_by_address) > 1:
        raise ConversionError(
            f"arrays with results on {len(clients_by_address)} clusters cannot be computed together",
            remedy="Convert the arrays of each cluster separately.",
        )
    return next(iter(clients_by_address.values()), None)


def persisted(graph: Any) -> dict[Any, Any]:
    """Return the persisted results in a graph: a dict from keys to futures."""
    layers = _materialized(_layers(graph))
    return {key: task for layer in layers for key, task in layer.items() if is_future(task)}


def futures_of(graph: Any) -> list[Any]:
    """Return the futures in a graph. They may be values of keys, or arguments of tasks."""
    future_type = _future()
    if future_type is None:
        return []
    layers = _layers(graph)
    unsearched = [task for layer in _materialized(layers) for task in layer.values()]
    unsearched += [list(getattr(layer, "indices", ())) for layer in layers]
    futures: list[Any] = []
    while unsearched:
        node = unsearched.pop()
        if isinstance(node, future_type):
            futures.append(node)
        elif isinstance(node, (list, tuple, set, frozenset)):
            unsearched.extend(node)
        elif isinstance(node, dict):
            unsearched.extend(node.values())
        elif getattr(node, "dependencies", None) and hasattr(node, "args"):
            # a future counts as a dependency, so a task without dependencies cannot contain one
            unsearched += [*node.args, *node.kwargs.values()]
    return futures


def _layers(graph: Any) -> Iterable[Any]:
    return getattr(graph, "layers", {"": graph}).values()


def _materialized(layers: Iterable[Any]) -> list[Any]:
    """Return the layers whose tasks exist already. Dask would have to make the tasks of the other layers."""
    from dask.highlevelgraph import MaterializedLayer

    return [layer for layer in layers if isinstance(layer, (MaterializedLayer, dict))]


def is_future(x: AnyArray) -> bool:
    """Return whether a value is a `distributed.Future`, without an import of `distributed`."""
    return isinstance(x, _future() or ())


def _future() -> Any:
    """Return the class `distributed.Future`, or None if `distributed` is not completely imported."""
    return getattr(sys.modules.get("distributed.client"), "Future", None)


def _client_of(future: Any) -> Any:
    """Return the client of a future. If the future has none because a task received it, return the task's client.

    Raises:
        ConversionError: the future failed or is lost, or its client is closed or asynchronous.
    """
    client, cause = future.client, None
    if client is None:
        import distributed

        with suppress(ValueError):  # get_client() raises a ValueError if there is no current client
            client = distributed.get_client()
    if client is None or client.status == "closed":
        reason, remedy = "it has no open client", "Convert it before its client is closed."
    elif client.asynchronous:
        reason = "its client is asynchronous"
        remedy = "Convert the result of `await client.compute(x)`."
    elif future.status == "error":
        cause = future.exception()
        reason = f"its task raised {type(cause).__name__}: {cause}"
        remedy = "Call future.result() to see the error with its traceback."
    elif future.status in ("cancelled", "lost"):
        reason, remedy = f"it is {future.status}", "Submit its task again."
    else:
        return client
    raise ConversionError(f"a Dask Future has no usable result: {reason}", remedy=remedy) from cause


def read_values(values: AnyTree) -> Any:
    """Return the computed values of a Dask array as a NumPy array, or as an array of the library of the blocks."""
    import numpy as np

    from arrayferry_plugins.numpy_ import NumpyBackend

    if isinstance(values, (np.ndarray, np.generic)):
        # `count_nonzero` can also read the mask of a structured array, which `is_masked` cannot
        if isinstance(values, np.ma.MaskedArray) and np.count_nonzero(np.ma.getmask(values)):
            first_call, reason = "dask.array.ma.filled(x, value)", ": its mask would be lost"
            raise refused("a Dask array of masked blocks", first_call, why=reason)
        return NumpyBackend().to_numpy(values)
    return values if registry.kind(values).is_array else convert(values, "numpy", scalars="convert")


def is_finished(x: AnyArray, values: AnyTree) -> bool:
    """Return whether the computed values of an array are in memory that Dask allocated and nothing else uses."""
    import numpy as np
    from dask.array import Array

    if type(x).__dask_postcompute__ is not Array.__dask_postcompute__:
        return False
    several_blocks: bool = math.prod(x.numblocks) > 1
    if several_blocks or not isinstance(values, np.ndarray):
        return several_blocks
    finish, arguments = x.__dask_postcompute__()  # older versions of Dask do not copy one block
    block = np.empty(1)
    return not np.shares_memory(finish([block], *arguments), block)


def in_own_memory(values: AnyTree, *, fresh: bool) -> Any:
    """Return the computed values of an array, in memory that nothing else uses. They are on the CPU or a GPU.

    Args:
        values: the computed values.
        fresh: whether the values are in such memory already, so that no copy is needed.
    """
    import numpy as np

    if isinstance(values, np.ndarray):
        return values if fresh and _is_alone(values) else np.array(values, subok=True)
    if registry.kind(values).source is not None:  # such as a sparse matrix of SciPy
        return copy.deepcopy(values)
    backend = backend_of(values)
    if backend.name == "cupy":
        import cupy

        # wait for other threads, which compute the blocks on their own GPU streams
        cupy.cuda.Device(values.device.id).synchronize()
    is_alone = fresh or backend.memory == "immutable"
    return values if is_alone else synchronized(backend.copy(values))


def _is_alone(values: AnyTree) -> bool:
    """Return whether an array is writable, and uses at least 8/9 of the memory that the array or its base owns."""
    import numpy as np

    base_array = values if values.base is None else values.base
    return (
        type(base_array) is np.ndarray
        and bool(base_array.flags.owndata and values.flags.writeable)
        and base_array.nbytes <= values.nbytes + values.nbytes // 8
    )


def on_host(values: AnyTree, sparse: Any = "raise") -> Any:
    """Return computed blocks of any library as a NumPy array."""
    return convert(read_values(values), "numpy", sparse=sparse)


def synchronized(x: AnyArray) -> Any:
    """Return a copy. If CuPy made it, first wait until it is complete, since other streams may change its source."""
    if backend_of(x).name == "cupy":
        import cupy

        with cupy.cuda.Device(x.device.id):
            cupy.cuda.get_current_stream().synchronize()
    return x
