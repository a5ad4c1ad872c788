"""`Engine`: the interface between a vector environment and a cluster."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any


class Engine(abc.ABC):
    """Makes `Host` objects in other processes, and passes requests to them.

    A subclass serves one system of workers. It knows nothing about environments: requests and answers
    are bytes. `place` and `call` may return any objects: only the engine uses them.

    Attributes:
        keeps_arrays: whether hosts are made with a function that keeps arrays in their process, and `assemble` makes
            Dask arrays of them.
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
            WorkerSetupError: a worker cannot import a module that it needs.
            EnvTimeoutError: no worker made its host in time.
        """

    @abc.abstractmethod
    def call(self, host: Any, request: bytes) -> Any:
        """Prepare a request, which the host answers after earlier ones. It runs at most once, whatever fails."""

    @abc.abstractmethod
    def gather(self, calls: Sequence[Any], timeout: float) -> list[bytes | None]:
        """Return the answers to calls, which run in parallel.

        Returns:
            The answers in the order of the calls, None for those that did not arrive: either the host is
            `lost`, or it took too long.
        """

    @abc.abstractmethod
    def lost(self, host: Any) -> bool:
        """Return whether a host that gave no answer is gone, along with its environments."""

    @abc.abstractmethod
    def release(self, host: Any) -> None:
        """Release a host, which may be lost or busy. Return immediately."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release all hosts, and shut down anything that the engine started itself."""

    def start(self, calls: Sequence[Any]) -> None:  # noqa: B027
        """Start those calls that have not been started, without waiting for their answers. `gather` does it too."""

    def wait(self, calls: Sequence[Any], timeout: float, least: int) -> list[bool]:
        """Return for which calls `gather` would return immediately.

        An engine that cannot tell returns True for all, which is the default. Slow hosts then hold up the others.

        Args:
            calls: calls that were started.
            timeout: the maximum number of seconds to wait.
            least: how many of them to wait for.
        """
        return [True] * len(calls)

    def steps_of(self, host: Any) -> int | None:
        """Return `Host.steps` of a host that is still busy with a call, None if it is not known."""
        return None

    def busy_with(self, host: Any) -> int | None:
        """Return `Host.current` of a host that is still busy with a call, None if it is not known."""
        return None

    def place_of(self, host: Any) -> str | None:
        """Return `Host.place` of a host that is still busy with a call, None if it is not known."""
        return None

    def discard(self) -> None:  # noqa: B027
        """Make hosts drop the trees that they keep and that were not assembled, without waiting for it."""

    def assemble(self, references: Sequence[Any]) -> list[Any]:
        """Return trees of Dask arrays for trees that the hosts have kept.

        Raises:
            NoWorkerError: a host is gone since it has answered.
        """
        raise NotImplementedError
