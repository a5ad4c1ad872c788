"""A stream as a dataset of PyTorch's data loader. Importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from arrayferry import OptionError, Stream

__all__ = ["Batches"]


class Batches(IterableDataset[Any]):  # type: ignore[misc]
    """The results of a stream, for PyTorch's `DataLoader` and torchdata's `StatefulDataLoader`.

    Each worker of the loader reads its part of the stream; together they read each row of an epoch once. Pass
    `batch_size=None` to the loader, since the stream makes the batches. An item is what the stream returns: a tensor,
    or a tree of tensors, with the dtypes, the device and the batch size that were chosen there.

    `len()` is the number of batches that all workers return in the whole epoch that was set, also after a state was
    loaded. Each worker may end with a batch that is not full, so it depends on their number. The order of an epoch
    depends on the seed of the stream, the epoch and the number of workers.

    `StatefulDataLoader` saves the position of each worker with `state_dict`, and continues from there.

    Args:
        stream: the stream, which begins at its first result. It may be a part, such as that of a process
            (`stream.shard(rank, world_size)`). Batches has an epoch of its own: use `Batches.set_epoch`.
        num_workers: the number of workers of the loader.

    Attributes:
        num_workers: the number of workers of the loader.

    Raises:
        OptionError: `num_workers` is not a natural number, the stream begins at another result, or it is a part of a
            shuffled stream that was made without `seed=`. While iterating: the loader has another number of workers.
        TypeError: it is not a stream.

    Examples:
        >>> import arrayferry as af
        >>> import numpy as np
        >>> from arrayferry_plugins.torch_.data import Batches
        >>> from torch.utils.data import DataLoader
        >>> stream = af.stream(np.arange(10), "torch", shuffle=True, seed=0, block=2, batch_size=4)
        >>> batches = Batches(stream)
        >>> loader = DataLoader(batches, batch_size=None, num_workers=0)
        >>> len(loader)
        3
        >>> for epoch in range(2):
        ...     batches.set_epoch(epoch)
        ...     print(sorted(row for batch in loader for row in batch.tolist()))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(self, stream: Stream[Any], num_workers: int = 0) -> None:
        if type(num_workers) is not int or num_workers < 0:
            raise OptionError(
                f"num_workers={num_workers!r:.80} is not valid", remedy="Pass that of the loader."
            )
        if not isinstance(stream, Stream):
            raise TypeError(
                f"a {type(stream).__name__} is not a stream: make one first: af.stream(array, 'torch', ...)"
            )
        if stream._ordering.is_drawn and stream.state_dict()["parts"] > 1:
            raise OptionError(
                "this is a part of a shuffled stream with a random seed, and other processes have another one",
                remedy="Pass seed= to the stream, the same in every process.",
            )
        self.num_workers = num_workers
        self._stream = stream.shard(0, 1)
        # in memory that workers share, so that those that persist see it change
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._latest: Stream[Any] | None = None  # the part that was iterated over, or loaded
        self._is_loaded = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._epoch.share_memory_()

    def __repr__(self) -> str:
        return f"<Batches of {self._stream!r}, for num_workers={self.num_workers}>"

    def _part(self, worker: int) -> Stream[Any]:
        """Return the part of a worker, at the beginning of the epoch."""
        part = self._stream.shard(worker, max(self.num_workers, 1))
        part.set_epoch(int(self._epoch))
        return part

    def _own_part(self) -> Stream[Any]:
        """Return the part of this process."""
        return self._part(self._worker())

    def _worker(self) -> int:
        """Return the number of the worker that this process is, 0 if there are none.

        Raises:
            OptionError: the loader has another number of workers.
        """
        worker = get_worker_info()
        found = 0 if worker is None else worker.num_workers
        if found != self.num_workers:
            where = "outside the workers of a loader" if worker is None else f"by {found} workers"
            raise OptionError(
                f"Batches for num_workers={self.num_workers} is used {where}",
                remedy="Pass the same num_workers to Batches and to the loader. The positions of workers are in the "
                "state_dict() of torchdata's StatefulDataLoader.",
            )
        return 0 if worker is None else int(worker.id)

    def __len__(self) -> int:
        return sum(len(self._part(worker)) for worker in range(max(self.num_workers, 1)))

    def __iter__(self) -> Iterator[Any]:
        if self._latest is None or not self._is_loaded:
            self._latest = self._own_part()
        self._is_loaded = False
        return iter(self._latest)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which decides how rows are shuffled. It is 0 at first.

        Call this before each epoch, as with PyTorch's samplers. Workers that persist notice it when the next iteration
        over the loader begins. If a state of this epoch was loaded, the iteration continues from there.

        Args:
            epoch: the number, of at least 0.

        Raises:
            OptionError: it is not an integer of at least 0.
        """
        self._stream.set_epoch(epoch)
        self._epoch.fill_(epoch)
        if self._latest is not None and self._latest.state_dict()["epoch"] != epoch:
            self._latest = None

    def state_dict(self) -> dict[str, int]:
        """Return how far this worker has come, as plain integers. `StatefulDataLoader` calls this in each worker.

        Returns:
            The state of the part of the stream (`arrayferry.Stream.state_dict`), `worker` and `num_workers`.

        Raises:
            OptionError: it is called outside the workers, although there are some.
        """
        worker = self._worker()
        part = self._latest or self._part(worker)
        return {"num_workers": self.num_workers, "worker": worker, **part.state_dict()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next iteration continue from a saved position. `StatefulDataLoader` calls this in each worker.

        Args:
            state: what `state_dict` returned.

        Raises:
            OptionError: it is not a state, or it belongs to another stream, another seed, another worker, or another
                number of workers.

        Examples:
            >>> import arrayferry as af
            >>> import numpy as np
            >>> from arrayferry_plugins.torch_.data import Batches
            >>> batches = Batches(af.stream(np.arange(6), "torch", batch_size=2))
            >>> next(iter(batches))
            tensor([0, 1])
            >>> again = Batches(af.stream(np.arange(6), "torch", batch_size=2))
            >>> again.load_state_dict(batches.state_dict())
            >>> next(iter(again))
            tensor([2, 3])
        """
        part, worker = self._own_part(), self._worker()
        own = {"num_workers": self.num_workers, "worker": worker, "seed": part.state_dict()["seed"]}
        for name, value in own.items():
            found = state.get(name) if isinstance(state, dict) else None
            if found != value:
                raise OptionError(
                    f"the state does not belong here: its {name} is {found!r:.80}, here it is {value}",
                    remedy="Make the stream with the same arrays, options and seed=, and Batches with the same "
                    "num_workers.",
                )
        part.load_state_dict(state)
        self._latest, self._is_loaded = part, True
