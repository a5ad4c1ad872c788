"""`Placement`: which environment lives where, and how the lost ones are made again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import arrayferry as af

from ._engine import Engine
from ._errors import (
    DistributedEnvError,
    EnvFailedError,
    EnvTimeoutError,
    NoWorkerError,
    WorkerSetupError,
)
from ._host import Failure, Order, pack, unpack

__all__ = ["Group", "Placement"]

_START = 30.0
"""Seconds that a worker may take at least to import what it needs."""
_LOOK = 1.0
"""Seconds between two looks for workers that have come back."""
_EXTRA = 10.0
"""Seconds that a worker may take where there are others."""
_AVOID = 60.0
"""Seconds for which a worker that did not answer is left out, if there are others."""
_DEATHS = 3
"""Workers that may die while they make the same environment."""


@dataclass(eq=False)
class Group:
    """A host and its environments, in ascending order."""

    host: Any
    worker: str
    indices: list[int] = field(default_factory=list)


class Placement:
    """Knows the hosts, and where each environment lives.

    Args:
        engine: makes and calls the hosts.
        num_envs: the number of environments.
        groups: the number of hosts, None for one for each worker.
        timeout: seconds that a call may take.
        min_workers: how many workers there must be before environments are made for the first time.

    Attributes:
        groups: the hosts that are in use.
        homeless: the environments that live nowhere, until `settle` makes them again.
        unreported: the environments that were lost, which the agent does not know yet.
        displaced: the environments that were made again, and may move to a better place.
        configuration: the arguments that each new host is configured with, None as long as they are not known.
    """

    def __init__(
        self, engine: Engine, num_envs: int, groups: int | None, timeout: float, min_workers: int
    ) -> None:
        self.engine = engine
        self.timeout = timeout
        self.groups: list[Group] = []
        self.homeless: set[int] = set(range(num_envs))
        self.unreported: set[int] = set()
        self.displaced: set[int] = set()
        self.configuration: tuple[Any, ...] | None = None
        self._num_envs = num_envs
        self._wanted = groups
        self._least = min_workers
        self._full = 0
        self._next_look = 0.0
        self._avoided: dict[str, float] = {}

    def ask(self, requests: Mapping[Group, tuple[Any, ...]]) -> dict[Group, Any]:
        """Send requests to several hosts at once, and return the answers of those that are not lost.

        Raises:
            EnvTimeoutError: a host did not answer. It is abandoned.
            EnvFailedError: an environment raised an error.
            WorkerSetupError: a worker cannot make an environment.
        """
        if not requests:
            return {}
        groups = list(requests)
        try:
            packed = [pack((method, arguments)) for method, *arguments in requests.values()]
        except Exception as error:
            raise af.OptionError(
                f"what was passed to the environments cannot be pickled ({type(error).__name__}: {error})",
                remedy="Pass values that can be sent to other processes.",
            ) from error
        calls = [
            self.engine.call(group.host, request)
            for group, request in zip(groups, packed, strict=True)
        ]
        answers = self.engine.gather(calls, self.timeout)
        replies: dict[Group, Any] = {}
        errors: list[DistributedEnvError] = []
        for group, answer in zip(groups, answers, strict=True):
            if answer is None:
                lost = self.engine.lost(group.host)
                if lost:
                    self.unreported.update(group.indices)
                else:
                    errors.insert(0, self._late(group))
                    self._avoid(group.worker)
                self._abandon(group)
                continue
            try:
                reply = unpack(answer)
            except Exception as error:  # this process lacks a class of an info or a result
                reply = Failure.of(error, None)
            if isinstance(reply, Failure):
                errors.append(_failed(reply, group, str(requests[group][0])))
            else:
                replies[group] = reply
        if errors:
            raise errors[0]
        return replies

    def _late(self, group: Group) -> EnvTimeoutError:
        index = self.engine.busy_with(group.host)
        indices = tuple(group.indices) if index is None else (index,)
        return EnvTimeoutError(
            f"{_named(indices)} did not answer within {self.timeout:g} s, on the worker {group.worker}",
            remedy="Pass a longer timeout if they may take that long. Only reset and close are possible now.",
            indices=indices,
            worker=group.worker,
        )

    def _abandon(self, group: Group) -> None:
        self.groups.remove(group)
        self.homeless.update(group.indices)
        self.engine.release(group.host)

    def describe(self, factories: Sequence[bytes]) -> list[Any]:
        """Make all environments for the first time, and return their descriptions."""
        self._await_workers()
        self._await_hosts()
        self._full = len({group.worker for group in self.groups})
        planned: dict[Group, list[int]] = {group: [] for group in self.groups}
        for index in sorted(self.homeless):
            planned[self.groups[index * len(self.groups) // self._num_envs]].append(index)
        made = self._make(planned, lambda index: Order(index, factories[index]), describe=True)
        self.unreported.clear()
        self.displaced.clear()
        return [made[index] for index in range(self._num_envs)]

    def _await_workers(self) -> None:
        """Wait for as many workers as there must be."""
        end = time.monotonic() + self.timeout
        while (count := len(self.engine.workers())) < self._least > 1:
            if time.monotonic() > end:
                raise NoWorkerError(
                    f"there are {count} workers instead of {self._least}, and no more came within "
                    f"{self.timeout:g} s",
                    remedy="Start workers, or pass a smaller min_workers or a longer timeout.",
                    indices=tuple(range(self._num_envs)),
                )
            time.sleep(0.05)

    def configure(self, *configuration: Any) -> None:
        """Tell all hosts, and those that come later, the autoreset mode and the space."""
        self.configuration = configuration
        self.ask(dict.fromkeys(self.groups, ("configure", *configuration)))

    def settle(self, order: Callable[[int], Order]) -> dict[int, tuple[Any, dict[str, Any]]]:
        """Make all homeless environments again, spread over the hosts.

        Args:
            order: returns what a host needs to make an environment.

        Returns:
            The observation and the infos of the first reset of each.

        Raises:
            NoWorkerError: there is no worker for them.
        """
        return self._make({}, order, describe=False)

    def _make(
        self, planned: dict[Group, list[int]], order: Callable[[int], Order], *, describe: bool
    ) -> dict[int, Any]:
        """Make all homeless environments, each group one at a time, so that each has the whole timeout.

        Args:
            planned: which of them each group makes at first. The others go where fewest are.
            order: returns what a host needs to make an environment.
            describe: whether descriptions are wanted.

        Returns:
            For each environment its description, or the observation and the infos of its first reset.
        """
        made: dict[int, Any] = {}
        deaths: Counter[int] = Counter()
        while self.homeless:
            self._await_hosts()
            suspects = [index for index in sorted(self.homeless) if deaths[index]]
            if suspects:  # alone, so that no other one dies with it
                planned = {self._emptiest(Counter()): suspects[:1]}
            planned = {
                group: [i for i in indices if i in self.homeless]
                for group, indices in planned.items()
            }
            planned = {
                group: indices
                for group, indices in planned.items()
                if group in self.groups and indices
            }
            if not planned:
                load = self._load()
                for index in sorted(self.homeless):
                    group = self._emptiest(load)
                    planned.setdefault(group, []).append(index)
                    load.update([group.worker, group])
            now = {group: indices[0] for group, indices in planned.items()}
            replies = self.ask({g: ("make", [order(i)], describe) for g, i in now.items()})
            for group, (found,) in replies.items():
                index = now[group]
                made[index] = found if describe else found[1:]
                group.indices.append(index)
                group.indices.sort()
                self.homeless.discard(index)
                self.displaced.add(index)
                del deaths[index]
            for group, index in now.items():
                if group not in replies:
                    deaths[index] += 1
                    if deaths[index] >= _DEATHS:
                        raise NoWorkerError(
                            f"{_DEATHS} workers died while they made {_named([index])} again",
                            remedy="It seems to end its process. Correct it, and call reset.",
                            indices=(index,),
                        )
        return made

    def _emptiest(self, load: Counter[Any]) -> Group:
        load = load or self._load()
        return min(self.groups, key=lambda group: (load[group.worker], load[group]))

    def _load(self) -> Counter[Any]:
        load: Counter[Any] = Counter()
        for group in self.groups:
            load[group] += len(group.indices)
            load[group.worker] += len(group.indices)
        return load

    def _await_hosts(self) -> None:
        """Place hosts on the workers that should have more. Wait for a worker if there is no host at all."""
        end = time.monotonic() + self.timeout
        self._place()
        while not self.groups:
            if time.monotonic() > end:
                raise NoWorkerError(
                    f"there is no worker for {_named(self.homeless)}, and none came within {self.timeout:g} s",
                    remedy="Start workers, and call reset.",
                    indices=tuple(sorted(self.homeless)),
                )
            time.sleep(0.05)
            self._place()

    def _place(self) -> None:
        """Place hosts on the workers that have fewer than their share."""
        now = time.monotonic()
        self._avoided = {worker: until for worker, until in self._avoided.items() if until > now}
        known = self.engine.workers()
        answering = [worker for worker in known if worker not in self._avoided]
        workers = (answering or ([] if self.groups else known))[: self._num_envs]
        if not workers:
            return
        wanted = min(self._wanted or len(workers), self._num_envs)
        share = Counter(workers[position % len(workers)] for position in range(wanted))
        share.subtract(group.worker for group in self.groups)
        missing = [workers[position % len(workers)] for position in range(wanted)]
        new = []
        for worker in missing:
            if share[worker] > 0:
                share[worker] -= 1
                new.append(worker)
        if not new:
            return
        try:
            hosts = self.engine.place(new, _EXTRA if self.groups else max(self.timeout, _START))
        except (EnvTimeoutError, WorkerSetupError):
            if not self.groups:
                raise
            hosts = [None] * len(new)  # the others go on
        for host, worker in zip(hosts, new, strict=True):
            if host is None:
                self._avoid(worker)
        placed = [Group(host, worker) for host, worker in zip(hosts, new, strict=True) if host]
        self.groups.extend(placed)
        if self.configuration is not None:
            self.ask(dict.fromkeys(placed, ("configure", *self.configuration)))

    def _avoid(self, worker: str) -> None:
        self._avoided[worker] = time.monotonic() + _AVOID

    def spread(self, indices: set[int]) -> list[int]:
        """Place hosts on workers that came later, and return which environments should move.

        Args:
            indices: those that may move, apart from the displaced ones.
        """
        self._place()
        before = self.displaced
        self.displaced = before | indices
        try:
            return self.movable(sorted(self.displaced))
        finally:
            self.displaced = before

    def look_for_workers(self) -> None:
        """Place hosts on workers that have come back, if environments are displaced. It is cheap."""
        now = time.monotonic()
        if not self.displaced or now < self._next_look:
            return
        self._next_look = now + _LOOK
        self._place()
        load = self._load()
        loads = [load[worker] for worker in {group.worker for group in self.groups}]
        if len(loads) >= self._full and loads and max(loads) - min(loads) <= 1:
            self.displaced.clear()

    def movable(self, candidates: Iterable[int], *, at_once: bool = True) -> list[int]:
        """Return the displaced ones among some environments that live on a worker with too many.

        Args:
            candidates: the environments.
            at_once: whether all of those that are returned will move, so that they must not be too many.
        """
        if not self.displaced or len(self.groups) < 2:
            return []
        load = self._load()
        workers = {group.worker for group in self.groups}
        home = {index: group.worker for group in self.groups for index in group.indices}
        found = []
        for index in candidates:
            worker = home.get(index)
            best = min(workers, key=load.__getitem__)
            if index in self.displaced and worker and load[worker] - load[best] >= 2:
                found.append(index)
                if at_once:
                    load[worker] -= 1
                    load[best] += 1
        return found

    def vacate(self, indices: Sequence[int]) -> None:
        """Close environments where they live. `settle` makes them in another place."""
        requests: dict[Group, tuple[Any, ...]] = {}
        for group in self.groups:
            here = [index for index in group.indices if index in indices]
            if here:
                group.indices = [index for index in group.indices if index not in here]
                requests[group] = ("drop", here)
        self.homeless.update(indices)
        self.ask(requests)
        for group in [group for group in self.groups if not group.indices]:
            if sum(other.worker == group.worker for other in self.groups) > 1:
                self._abandon(group)

    def close(self, timeout: float) -> None:
        """Close the environments, and forget the hosts."""
        calls = [self.engine.call(group.host, pack(("close", ()))) for group in self.groups]
        try:
            if calls:
                self.engine.gather(calls, timeout)
        finally:
            for group in list(self.groups):
                self._abandon(group)


def _named(indices: Iterable[int]) -> str:
    found = sorted(indices)
    if len(found) == 1:
        return f"environment {found[0]}"
    return f"environments {', '.join(map(str, found))}"


def _failed(failure: Failure, group: Group, method: str) -> DistributedEnvError:
    """Return the error for an answer that is a failure."""
    indices = tuple(group.indices) if failure.index is None else (failure.index,)
    error: DistributedEnvError
    if failure.setup:
        missing = (
            f"cannot import {failure.module}" if failure.module else "cannot load its function"
        )
        error = WorkerSetupError(
            f"the worker {group.worker} {missing}, to make {_named(indices)}: "
            f"{failure.type}: {failure.text}",
            remedy="Install it on the workers, send it with client.upload_file, or have it pickled by "
            "cloudpickle.register_pickle_by_value(module).",
            indices=indices,
            worker=group.worker,
            module=failure.module,
        )
    else:
        error = EnvFailedError(
            f"{_named(indices)} raised {failure.type}: {failure.text}, in {method} on the worker "
            f"{group.worker}",
            remedy="Correct the environment." if method == "make" else "Call reset to go on.",
            indices=indices,
            worker=group.worker,
            original=failure.type,
        )
    try:
        error.__cause__ = None if failure.error is None else unpack(failure.error)
    except Exception:  # this process lacks the class
        pass
    error.add_note(f"On the worker:\n{failure.traceback}")
    return error
