"""`HostPool`: the hosts that an engine has made, and requests to them."""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import arrayferry as af
from arrayferry_gym.distributed._workers.host import Hosted
from arrayferry_gym.distributed._workers.messages import Failure, Request, from_bytes, to_bytes
from arrayferry_gym.distributed._workers.records import HostRecord, Record

from .engine import Engine
from .errors import DistributedEnvError, EnvTimeoutError, NoWorkerError, WorkerSetupError
from .failures import error_of, named

_START = 30.0
"""The least time, in seconds, that a first worker has to import what it needs."""
_START_OF_MORE = 10.0
"""The time, in seconds, that a worker has for that while others have hosts."""
_AVOID = 60.0
"""Seconds for which a worker that did not answer is left out, if there are others."""


class Sent:
    """A request that was sent to a host.

    Args:
        host: the host.
        request: the request.
        call: the engine's own object for it.

    Attributes:
        since: the time since which its host is not known to have taken a step.
        late: whether that is too long.
    """

    def __init__(self, host: HostRecord, request: Request, call: Any) -> None:
        self.host = host
        self.request = request
        self.call = call
        self.since = self._looked = time.monotonic()
        self.late = False
        self._steps: int | None = None

    def look(self, engine: Engine, interval: float) -> None:
        """Ask the host how many steps it has taken, if it was not asked in the last `interval` seconds."""
        now = time.monotonic()
        if now - self._looked >= interval:
            self._looked = now
            steps = engine.steps_of(self.host.handle)
            if steps != self._steps:
                self._steps, self.since = steps, now


class HostPool:
    """Makes hosts on the available workers, and passes requests to them.

    Args:
        engine: makes and calls the hosts.
        envs: the environments, or groups of these.
        count: the number of hosts, None for one for each worker.
        timeout: seconds that a call may take.
        silence: seconds without a step after which a host is given up, None for `timeout`.
        longest: seconds that a call with many steps may take in all, None for `timeout`.

    Attributes:
        engine: as given.
        envs: as given.
        timeout: as given.
        hosts: the hosts that are in use, and their environments.
        unsettled: the environments that no host has, and those that have lost a host, until nothing is
            left to do for them or to report.
        configuration: what each new host is configured with, None until it is known.
    """

    def __init__(
        self,
        engine: Engine,
        envs: Sequence[Record],
        count: int | None,
        timeout: float,
        silence: float | None = None,
        longest: float | None = None,
    ) -> None:
        self.engine = engine
        self.timeout = timeout
        self._silence = silence or timeout
        self._longest = longest or timeout
        self.envs = envs
        self.hosts: list[HostRecord] = []
        self.unsettled: list[Any] = list(envs)
        self.configuration: Request | None = None
        self._wanted = count
        self._avoided: dict[str, float] = {}

    def ask(self, requests: Mapping[HostRecord, Request]) -> dict[HostRecord, Any]:
        """Send requests to several hosts at once, and return the answers of those that are not lost.

        Raises:
            EnvTimeoutError: a host did not answer. It is dropped.
            EnvFailedError: an environment raised an error.
            WorkerSetupError: a worker cannot make an environment.
        """
        sent = self.send(requests)
        if sent and self._longest > self.timeout:
            self.start(sent)
            self.wait(sent, len(sent))
        return self.receive(sent)

    def send(self, requests: Mapping[HostRecord, Request]) -> list[Sent]:
        """Prepare to send requests to several hosts at once. `start` or `receive` sends them."""
        sent = []
        for host, request in requests.items():
            try:
                data = to_bytes(request)
            except Exception as error:
                raise af.OptionError(
                    f"what was passed to the environments cannot be pickled ({type(error).__name__}: {error})",
                    remedy="Pass values that can be sent to other processes.",
                ) from error
            sent.append(Sent(host, request, self.engine.call(host.handle, data)))
        return sent

    def start(self, sent: Sequence[Sent]) -> None:
        """Start the requests that have not been started, without waiting for the answers."""
        self.engine.start([each.call for each in sent])

    def wait(self, sent: Sequence[Sent], least: int) -> list[bool]:
        """Wait for answers, as long as hosts take steps.

        Args:
            sent: requests.
            least: how many of them to wait for.

        Returns:
            Which can be received: they are answered, or their host has taken no step for too long.
        """
        calls = [each.call for each in sent]
        interval = min(self.timeout / 4, 5.0)
        while True:
            over = self.engine.wait(calls, interval, least)
            if sum(over) >= least:
                return over
            for number, each in enumerate(sent):
                if not over[number]:
                    each.look(self.engine, interval)
                    over[number] = each.late = time.monotonic() - each.since > self._silence
            if any(over):
                return over

    def receive(self, sent: Sequence[Sent], timeout: float | None = None) -> dict[HostRecord, Any]:
        """Return the answers of the hosts that are not lost. There is one request for each.

        Args:
            sent: the requests.
            timeout: how many seconds to wait for them, None for as long as calls may take.

        Raises:
            EnvTimeoutError: a host did not answer. It is dropped.
            EnvFailedError: an environment raised an error.
            PolicyFailedError: a policy raised an error.
            WorkerSetupError: a worker cannot make an environment.
        """
        if not sent:
            return {}
        if timeout is None:
            timeout = self._longest
        late = all(each.late for each in sent)
        answers = self.engine.gather([each.call for each in sent], 0.0 if late else timeout)
        replies: dict[HostRecord, Any] = {}
        errors: list[DistributedEnvError] = []
        for each, answer in zip(sent, answers, strict=True):
            host = each.host
            if answer is None:
                if self.engine.lost(host.handle):
                    self.lose(host)
                else:
                    waited = self._silence if each.late else timeout
                    errors.insert(0, self._late(host, each.request, waited))
                    self._avoid(host.worker)
                    self.drop(host)
                continue
            try:
                reply = from_bytes(answer)
            except Exception as error:  # this process lacks a class of an info or a result
                reply = Failure.of(error, None)
            if isinstance(reply, Failure):
                errors.append(error_of(reply, each.request, host))
            else:
                replies[host] = reply
        if errors:
            raise errors[0]
        return replies

    def _late(self, host: HostRecord, request: Request, waited: float) -> EnvTimeoutError:
        index = self.engine.busy_with(host.handle)
        indices = host.indices if index is None else (index,)
        place = self.engine.place_of(host.handle)
        where = "" if place is None else f", in {place}"
        remedy = "Pass a longer timeout if they may take that long."
        if host.envs:  # it was made before
            remedy += f" To go on, {host.envs[0].remedy}."
        return EnvTimeoutError(
            f"{named(indices)} did not answer within {waited:g} s{where}, on the worker {host.worker}",
            remedy=remedy,
            indices=indices,
            worker=host.worker,
        )

    def configure(self, configuration: Request) -> None:
        """Configure all hosts, and those that are made later."""
        self.configuration = configuration
        self.ask(dict.fromkeys(self.hosts, configuration))

    def detach(self, envs: Iterable[Record]) -> None:
        """Note that some environments are no longer on any host."""
        for env in envs:
            if env not in self.unsettled:
                self.unsettled.append(env)
            if env.host is not None:
                env.host.remove([env])

    def drop(self, host: HostRecord) -> None:
        """Forget a host, which may be lost or busy."""
        if host in self.hosts:
            self.detach(host.envs)
            self.hosts.remove(host)
            self.engine.release(host.handle)

    def lose(self, host: HostRecord) -> None:
        """Forget a host whose worker is gone."""
        for env in host.envs:
            env.lost = True
        self.drop(host)

    def await_host(self, envs: Sequence[Record], *, first: bool = False) -> None:
        """Make hosts where some are missing. Wait for a worker if there is no host at all.

        Args:
            envs: the environments that need a host, for the message.
            first: whether they were never made.
        """
        end = time.monotonic() + self.timeout
        self.fill()
        while not self.hosts:
            if time.monotonic() > end:
                indices = tuple(index for env in envs for index in env.indices)
                raise NoWorkerError(
                    f"there is no worker for {named(indices)}, and none came within {self.timeout:g} s",
                    remedy="Start workers." if first else f"Start workers, and {envs[0].remedy}.",
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
        workers = (answering or ([] if self.hosts else known))[: len(self.envs)]
        wanted = min(self._wanted or len(workers), len(self.envs))
        present = Counter(host.worker for host in self.hosts)
        new = []
        for worker in itertools.islice(itertools.cycle(workers), wanted):
            if present[worker]:
                present[worker] -= 1
            else:
                new.append(worker)
        if not new:
            return
        patience = _START_OF_MORE if self.hosts else max(self.timeout, _START)
        try:
            handles = self.engine.place(new, patience)
        except (EnvTimeoutError, WorkerSetupError):
            if not self.hosts:
                raise
            handles = [None] * len(new)  # the others continue
        placed = []
        for handle, worker in zip(handles, new, strict=True):
            if handle is None:
                self._avoid(worker)
            else:
                placed.append(HostRecord(handle, worker))
        self.hosts.extend(placed)
        if self.configuration is not None:
            self.ask(dict.fromkeys(placed, self.configuration))

    def _avoid(self, worker: str) -> None:
        self._avoided[worker] = time.monotonic() + _AVOID

    def close(self) -> None:
        """Close the environments, and forget the hosts. It does not wait long."""
        close = to_bytes(functools.partial(Hosted.close))
        calls = [self.engine.call(host.handle, close) for host in self.hosts]
        try:
            if calls:
                self.engine.gather(calls, min(self.timeout, 5.0))
        finally:
            for host in list(self.hosts):
                self.drop(host)


def await_workers(engine: Engine, least: int, timeout: float, indices: Sequence[int]) -> None:
    """Wait until there are some workers.

    Args:
        engine: knows the workers.
        least: how many there must be.
        timeout: how many seconds to wait.
        indices: the environments, for the error.

    Raises:
        NoWorkerError: they did not come.
    """
    end = time.monotonic() + timeout
    while (count := len(engine.workers())) < least:
        if time.monotonic() > end:
            raise NoWorkerError(
                f"there are {count} workers instead of {least}, and no more came within {timeout:g} s",
                remedy="Start workers, or pass a smaller min_workers or a longer timeout.",
                indices=tuple(indices),
            )
        time.sleep(0.05)
