"""`Engine`: what a vector environment needs of a cluster."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

__all__ = ["Engine"]


class Engine(abc.ABC):
    """Makes `Host` objects in other processes, and passes requests to them.

    A subclass serves one system of workers. It knows nothing about environments: requests and answers
    are bytes. `place` and `call` may return any objects: only the engine uses them.

    Attributes:
        keeps_arrays: whether hosts are made with a function that keeps arrays where they are, and
            `assemble` makes Dask arrays of them.
    """

    keeps_arrays = False

    @abc.abstractmethod
    def workers(self) -> Sequence[str]:
        """Return the names of the workers that may run hosts now.

        Raises:
            SchedulerLostError: they are not known.
        """

    @abc.abstractmethod
    def place(self, workers: Sequence[str], timeout: float) -> list[Any]:
        """Make one `Host()` on each of the given workers, which may be named several times.

        Returns:
            The hosts, None where a worker is gone, or is late while others are not.

        Raises:
            WorkerSetupError: a worker cannot import what it needs.
            EnvTimeoutError: no worker did it in time.
        """

    @abc.abstractmethod
    def call(self, host: Any, request: bytes) -> Any:
        """Prepare to send a request, which the host answers after earlier ones. It runs at most once, whatever fails."""

    @abc.abstractmethod
    def gather(self, calls: Sequence[Any], timeout: float) -> list[bytes | None]:
        """Return the answers to calls, which run at the same time.

        Returns:
            The answers in the order of the calls, None for those that did not arrive: either the host is
            `lost`, or it took too long.
        """

    @abc.abstractmethod
    def lost(self, host: Any) -> bool:
        """Tell whether a host that gave no answer is gone, along with its environments."""

    @abc.abstractmethod
    def release(self, host: Any) -> None:
        """Forget a host, which may be lost, or busy. Return at once."""

    @abc.abstractmethod
    def close(self) -> None:
        """Forget all hosts, and end what the engine started itself."""

    def start(self, calls: Sequence[Any]) -> None:  # noqa: B027
        """Begin with calls, without waiting for their answers. `gather` begins with those that have not begun yet."""

    def wait(self, calls: Sequence[Any], timeout: float, least: int) -> list[bool]:
        """Tell for which calls `gather` returns at once.

        An engine that does not know says so of all, which is the default. Then the answers of slow hosts hold up the others.

        Args:
            calls: calls that have begun.
            timeout: how many seconds to wait at most.
            least: for how many of them to wait.
        """
        return [True] * len(calls)

    def steps_of(self, host: Any) -> int | None:
        """Return `Host.steps` of a host that is still busy with a call, None if it is not known."""
        return None

    def busy_with(self, host: Any) -> int | None:
        """Return `Host.current` of a host that is still busy with a call, None if it is not known."""
        return None

    def discard(self) -> None:  # noqa: B027
        """Let hosts drop the trees that they have kept and that `assemble` was not asked for. It does not wait."""

    def assemble(self, references: Sequence[Any]) -> list[Any]:
        """Return the trees of Dask arrays for trees that the hosts have kept."""
        raise NotImplementedError
