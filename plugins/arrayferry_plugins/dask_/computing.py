"""Lazy arrays and values are computed together, by the scheduler or the cluster that they belong to."""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from arrayferry import ConversionError, registry

from .graphs import arguments, failure_of, owner_of, persisted


def compute(xs: Sequence[Any]) -> Sequence[Any]:
    """Compute several collections together, so that common parts are computed once."""
    import dask

    if not xs:
        return []
    are_arrays = [registry.kind(x).is_array for x in xs]
    try:
        client = _client_of(xs)
        if client is None:
            scheduler_of(xs)
        options = {} if client is None else {"scheduler": client}
        if not all(are_arrays):
            xs = [
                x if is_array else _LikeArray(x) for x, is_array in zip(xs, are_arrays, strict=True)
            ]
        return dask.compute(*xs, **options)  # type: ignore[no-any-return]
    except (MemoryError, ConversionError):
        raise
    except Exception as error:
        which = "a" if len(xs) == 1 else f"one of {len(xs)}"
        what = "Dask array" if all(are_arrays) else "Dask value"
        raise ConversionError(
            f"{which} {what}{'s' if len(xs) > 1 else ''} could not be computed "
            f"({type(error).__name__}: {error})",
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
        "Dask arrays and values cannot be computed here: the current client is asynchronous",
        remedy="Do it in another thread, as by asyncio.to_thread, or convert the result of `await client.compute(x)`.",
    )


class _LikeArray:
    """A `Delayed` that Dask optimises together with arrays, so that common parts run once.

    Args:
        delayed: the value.
    """

    def __init__(self, delayed: Any) -> None:
        from dask.array import Array

        self._delayed = delayed
        self.__dask_optimize__ = Array.__dask_optimize__
        self.__dask_scheduler__ = Array.__dask_scheduler__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delayed, name)

    def __dask_postcompute__(self) -> Any:
        return operator.itemgetter(0), ()


def _client_of(xs: Sequence[Any]) -> Any:
    """Return the client that computed parts of some collections, None if all of them are yet to be computed.

    Raises:
        ConversionError: a part has no result, or there are several clients.
    """
    if "distributed.client" not in sys.modules:
        return None
    graphs = [x.__dask_graph__() for x in xs]
    futures = [future for graph in graphs for future in persisted(graph).values()]
    owners = {id(future.client): future.client for future in futures}
    if len(owners) > 1:
        raise ConversionError(
            f"values that are persisted by {len(owners)} different clients cannot be computed together",
            remedy="Convert them one by one.",
        )
    futures += itertools.chain.from_iterable(map(arguments, graphs))
    for future in futures:
        failure = failure_of(future)
        if failure is not None:
            raise failure
    return owner_of(futures)


def gather(futures: Sequence[Any]) -> Sequence[Any]:
    """Wait for futures and return their results, or an error for one that has none."""
    by_client: dict[int, list[Any]] = {}
    for future in futures:
        by_client.setdefault(id(future.client), []).append(future)
    values: dict[int, Any] = {}
    with contextlib.ExitStack() as stack:
        if not all(future.done() for future in futures):
            stack.enter_context(_outside_the_pool())
        for own in by_client.values():
            try:
                results = iter(own[0].client.gather(own, errors="skip"))
            except Exception as error:
                raise ConversionError(
                    f"the results of {len(own)} Dask Futures could not be gathered "
                    f"({type(error).__name__}: {error})",
                    remedy="client.gather(futures) raises the error too.",
                ) from error
            for future in own:
                failure = failure_of(future)
                values[id(future)] = next(results) if failure is None else failure
    return [values[id(future)] for future in futures]


@contextlib.contextmanager
def _outside_the_pool() -> Iterator[None]:
    """While a task of a worker waits for others, let another task use its thread."""
    import distributed

    try:
        distributed.secede()
    except Exception:  # this does not run in a task
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()
