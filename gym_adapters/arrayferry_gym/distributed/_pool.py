"""`HostPool`: the hosts that an engine has made, and requests to them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import arrayferry as af

from ._engine import Engine
from ._errors import DistributedEnvError, EnvTimeoutError, NoWorkerError, WorkerSetupError
from ._failures import error_of, named
from ._messages import Close, Configure, Failure, Request, from_bytes, to_bytes
from ._records import EnvRecord, Group

__all__ = ["HostPool"]

_START = 30.0
"""The least time, in seconds, that a first worker has to import what it needs."""
_START_OF_MORE = 10.0
"""The time, in seconds, that a worker has for that while others have hosts."""
_AVOID = 60.0
"""Seconds for which a worker that did not answer is left out, if there are others."""


class HostPool:
    """Makes hosts on the workers that there are, and passes requests to them.

    Args:
        engine: makes and calls the hosts.
        envs: the environments.
        groups: the number of hosts, None for one for each worker.
        timeout: seconds that a call may take.

    Attributes:
        groups: the hosts that are in use, and their environments.
        unsettled: the environments that no host has, and those that have lost a host, until nothing is
            left to do for them or to report.
        configuration: what each new host is configured with, None as long as it is not known.
    """

    def __init__(
        self, engine: Engine, envs: list[EnvRecord], groups: int | None, timeout: float
    ) -> None:
        self.engine = engine
        self.timeout = timeout
        self.groups: list[Group] = []
        self.unsettled: list[EnvRecord] = list(envs)
        self.configuration: Configure | None = None
        self._num_envs = len(envs)
        self._wanted = groups
        self._avoided: dict[str, float] = {}

    def ask(self, requests: Mapping[Group, Request]) -> dict[Group, Any]:
        """Send requests to several hosts at once, and return the answers of those that are not lost.

        Raises:
            EnvTimeoutError: a host did not answer. It is dropped.
            EnvFailedError: an environment raised an error.
            WorkerSetupError: a worker cannot make an environment.
        """
        if not requests:
            return {}
        groups = list(requests)
        try:
            pickled = [to_bytes(request) for request in requests.values()]
        except Exception as error:
            raise af.OptionError(
                f"what was passed to the environments cannot be pickled ({type(error).__name__}: {error})",
                remedy="Pass values that can be sent to other processes.",
            ) from error
        calls = [
            self.engine.call(group.host, request)
            for group, request in zip(groups, pickled, strict=True)
        ]
        answers = self.engine.gather(calls, self.timeout)
        replies: dict[Group, Any] = {}
        errors: list[DistributedEnvError] = []
        for group, answer in zip(groups, answers, strict=True):
            if answer is None:
                if self.engine.lost(group.host):
                    for env in group.envs:
                        env.lost = True
                else:
                    errors.insert(0, self._late(group))
                    self._avoid(group.worker)
                self.drop(group)
                continue
            try:
                reply = from_bytes(answer)
            except Exception as error:  # this process lacks a class of an info or a result
                reply = Failure.of(error, None)
            if isinstance(reply, Failure):
                errors.append(error_of(reply, requests[group], group))
            else:
                replies[group] = reply
        if errors:
            raise errors[0]
        return replies

    def _late(self, group: Group) -> EnvTimeoutError:
        index = self.engine.busy_with(group.host)
        indices = group.indices if index is None else (index,)
        return EnvTimeoutError(
            f"{named(indices)} did not answer within {self.timeout:g} s, on the worker {group.worker}",
            remedy="Pass a longer timeout if they may take that long. Only reset and close are possible now.",
            indices=indices,
            worker=group.worker,
        )

    def configure(self, configuration: Configure) -> None:
        """Configure all hosts, and those that are made later."""
        self.configuration = configuration
        self.ask(dict.fromkeys(self.groups, configuration))

    def detach(self, envs: Iterable[EnvRecord]) -> None:
        """Note that no host has some environments any more."""
        for env in envs:
            if env.group is not None:
                env.group.remove([env])
            if env not in self.unsettled:
                self.unsettled.append(env)

    def drop(self, group: Group) -> None:
        """Forget a host, which may be lost or busy."""
        self.groups.remove(group)
        self.detach(group.envs)
        self.engine.release(group.host)

    def await_workers(self, least: int) -> None:
        """Wait until there are some workers."""
        end = time.monotonic() + self.timeout
        while (count := len(self.engine.workers())) < least > 1:
            if time.monotonic() > end:
                raise NoWorkerError(
                    f"there are {count} workers instead of {least}, and no more came within "
                    f"{self.timeout:g} s",
                    remedy="Start workers, or pass a smaller min_workers or a longer timeout.",
                    indices=tuple(range(self._num_envs)),
                )
            time.sleep(0.05)

    def await_host(self, envs: Iterable[EnvRecord]) -> None:
        """Make hosts where some are missing. Wait for a worker if there is no host at all.

        Args:
            envs: the environments that need a host, for the message.
        """
        end = time.monotonic() + self.timeout
        self.fill()
        while not self.groups:
            if time.monotonic() > end:
                indices = tuple(env.index for env in envs)
                raise NoWorkerError(
                    f"there is no worker for {named(indices)}, and none came within {self.timeout:g} s",
                    remedy="Start workers, and call reset.",
                    indices=indices,
                )
            time.sleep(0.05)
            self.fill()

    def fill(self) -> None:
        """Make hosts on the workers that have fewer than they should."""
        now = time.monotonic()
        self._avoided = {worker: until for worker, until in self._avoided.items() if until > now}
        known = self.engine.workers()
        answering = [worker for worker in known if worker not in self._avoided]
        workers = (answering or ([] if self.groups else known))[: self._num_envs]
        if not workers:
            return
        wanted = min(self._wanted or len(workers), self._num_envs)
        places = [workers[position % len(workers)] for position in range(wanted)]
        missing = Counter(places)
        missing.subtract(group.worker for group in self.groups)
        new = []
        for worker in places:
            if missing[worker] > 0:
                missing[worker] -= 1
                new.append(worker)
        if not new:
            return
        try:
            hosts = self.engine.place(
                new, _START_OF_MORE if self.groups else max(self.timeout, _START)
            )
        except (EnvTimeoutError, WorkerSetupError):
            if not self.groups:
                raise
            hosts = [None] * len(new)  # the others go on
        placed = []
        for host, worker in zip(hosts, new, strict=True):
            if host is None:
                self._avoid(worker)
            else:
                placed.append(Group(host, worker))
        self.groups.extend(placed)
        if self.configuration is not None:
            self.ask(dict.fromkeys(placed, self.configuration))

    def _avoid(self, worker: str) -> None:
        self._avoided[worker] = time.monotonic() + _AVOID

    def close(self, timeout: float) -> None:
        """Close the environments, and forget the hosts."""
        close = to_bytes(Close())
        calls = [self.engine.call(group.host, close) for group in self.groups]
        try:
            if calls:
                self.engine.gather(calls, timeout)
        finally:
            for group in list(self.groups):
                self.drop(group)
