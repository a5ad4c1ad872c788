"""Dask arrays of segments that stay on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed.client import Future

from arrayferry_gym.distributed._workers.observations import map_arrays

from .actor import RemoteArray
from .internals import register


class _KeptArray(Future):  # type: ignore[misc]
    """A future of an array that a host has kept. No task can recompute it.

    Args:
        array: the reference to it.
        client: the client.
    """

    def __init__(self, array: RemoteArray, client: Any) -> None:
        super().__init__(array.key, client)
        self.worker = array.worker

    def why_lost(self) -> tuple[str, str]:
        """Return why there is no result, and what to do."""
        return (
            f"it was collected on the worker {self.worker}, which is gone",
            "Convert segments soon, or pass another target than 'dask'.",
        )


async def _tell_scheduler(client: Any, arrays: Sequence[RemoteArray]) -> None:
    """Tell the scheduler where arrays are, as Client.scatter does."""
    nbytes = {array.key: array.nbytes for array in arrays}
    who_has = {array.key: [array.worker] for array in arrays}
    try:
        await register(client, nbytes, who_has)
    except Exception:
        # some are registered without a worker or a client: once a client wants them, they can be released
        nowhere: dict[str, list[str]] = {key: [] for key in who_has}
        await register(client, nbytes, nowhere)
        raise


def assembled(client: Any, references: Sequence[Any]) -> tuple[list[Any], dict[str, list[str]]]:
    """Return the trees of Dask arrays for trees of references, and the keys of these by the actor that has them.

    Args:
        client: the client that holds the arrays from now on.
        references: trees of `RemoteArray`.

    Raises:
        KeyError: the scheduler no longer knows a worker.
    """
    import dask.array as da

    arrays: dict[str, RemoteArray] = {}
    map_arrays(lambda array: arrays.setdefault(array.key, array), tuple(references))
    futures = {key: _KeptArray(array, client) for key, array in arrays.items()}
    try:
        client.sync(_tell_scheduler, client, list(arrays.values()))
    except BaseException:  # whose traceback may keep the futures for long
        for future in futures.values():
            future.release()
        raise

    def lazy(array: RemoteArray) -> Any:
        return da.from_delayed(futures[array.key], array.shape, array.dtype)

    trees = [map_arrays(lazy, tree) for tree in references]
    keys: dict[str, list[str]] = {}
    for key, array in arrays.items():
        keys.setdefault(array.host, []).append(key)
    return trees, keys
