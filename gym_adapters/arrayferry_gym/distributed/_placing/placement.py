"""`Placement`: which host has which environment, and how lost ones are recreated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from arrayferry_gym.distributed._workers.host import Hosted
from arrayferry_gym.distributed._workers.messages import Request
from arrayferry_gym.distributed._workers.records import HostRecord

from .errors import NoWorkerError
from .failures import named
from .pool import HostPool

_LOOK = 1.0
"""Seconds between two checks for workers that have come back."""
_DEATHS = 3
"""The number of workers that may die while making the same environment, before it is given up."""


class Placement:
    """Distributes environments over hosts.

    Args:
        pool: makes and calls the hosts.

    Attributes:
        pool: as given.
    """

    def __init__(self, pool: HostPool) -> None:
        self.pool = pool
        self._envs = pool.envs
        self._workers_at_first = 0
        self._next_look = 0.0

    @property
    def hosts(self) -> list[HostRecord]:
        """The hosts that are in use, and their environments."""
        return self.pool.hosts

    def _select(self, matches: Callable[[Any], bool]) -> list[Any]:
        return sorted(filter(matches, self.pool.unsettled), key=lambda env: env.index)

    @property
    def unplaced(self) -> list[Any]:
        """The environments that no host has."""
        return self._select(lambda env: env.host is None)

    @property
    def lost(self) -> list[Any]:
        """The environments whose loss no result has reported yet."""
        return self._select(lambda env: env.lost)

    @property
    def may_move(self) -> list[Any]:
        """The environments that were recreated, and may move to a worker with fewer environments."""
        return [env for env in self._envs if env.may_move]

    def forget_settled(self) -> None:
        """Remove settled environments from `unsettled`."""
        if self.pool.unsettled:
            self.pool.unsettled = [env for env in self.pool.unsettled if not env.settled]

    def make_all(self, make: Callable[[Any], Request]) -> list[Any]:
        """Make all environments for the first time, and return the answers.

        Args:
            make: returns the request that makes an environment.
        """
        self.pool.await_host(self._envs, first=True)
        hosts, total = self.pool.hosts, len(self._envs)
        self._workers_at_first = len({host.worker for host in hosts})
        homes = {env: hosts[env.index * len(hosts) // total] for env in self._envs}
        made = self.make_unplaced(make, homes=homes)
        for env in self._envs:
            env.lost = env.may_move = False
        self.forget_settled()
        return [made[env] for env in self._envs]

    def make_unplaced(
        self,
        make: Callable[[Any], Request],
        *,
        envs: Sequence[Any] | None = None,
        homes: Mapping[Any, HostRecord] | None = None,
    ) -> dict[Any, Any]:
        """Make environments that no host has, one at a time on each host, so that each has the whole timeout.

        Args:
            make: returns the request that makes an environment.
            envs: which of them, None for all, also those that are lost meanwhile.
            homes: the host for each that was never made. If it is gone, and for all others, the host with the fewest is used.

        Returns:
            The environments that were made, and the answers.

        Raises:
            NoWorkerError: there is no worker for them.
        """
        made: dict[Any, Any] = {}
        deaths: Counter[Any] = Counter()
        first = homes is not None
        while unplaced := [env for env in self.unplaced if envs is None or env in envs]:
            self.pool.await_host(unplaced, first=first)
            suspects = [env for env in unplaced if deaths[env]]
            # alone, so that no other environment is lost with it
            now = self._next(suspects[:1] or unplaced, homes or {})
            replies = self.pool.ask({host: make(env) for host, env in now.items()})
            for host, reply in replies.items():
                env = now[host]
                made[env] = reply
                host.add(env)
                env.may_move = True
                del deaths[env]
            for host, env in now.items():
                if host not in replies:
                    deaths[env] += 1
                    if deaths[env] >= _DEATHS:
                        raise NoWorkerError(
                            f"{_DEATHS} workers died while they made {named(env.indices)}{'' if first else ' again'}",
                            remedy="It seems to end its process. Correct it"
                            + ("." if first else f", and {env.remedy}."),
                            indices=tuple(env.indices),
                        )
        return made

    def _next(self, envs: Iterable[Any], homes: Mapping[Any, HostRecord]) -> dict[HostRecord, Any]:
        """Return what each host makes next, if all of some environments are to be made."""
        hosts, load = self.pool.hosts, self._load()
        now: dict[HostRecord, Any] = {}
        for env in sorted(envs, key=lambda env: homes.get(env) not in hosts):
            home = homes.get(env)
            if home in hosts:
                host = home
            else:
                host = min(hosts, key=lambda host: (load[host.worker], load[host]))
            now.setdefault(host, env)
            load.update([host.worker, host])
        return now

    def _load(self) -> Counter[Any]:
        """Return how many environments each host and each worker has."""
        load: Counter[Any] = Counter()
        for host in self.pool.hosts:
            load[host] += len(host.envs)
            load[host.worker] += len(host.envs)
        return load

    def look_for_workers(self) -> None:
        """Make hosts on workers that have come back, if environments may move there. It is cheap."""
        now = time.monotonic()
        movable = self.may_move
        if not movable or now < self._next_look:
            return
        self._next_look = now + _LOOK
        self.pool.fill()
        load = self._load()
        loads = [load[worker] for worker in {host.worker for host in self.pool.hosts}]
        if len(loads) >= self._workers_at_first and loads and max(loads) - min(loads) <= 1:
            for env in movable:
                env.may_move = False

    def spread(self, candidates: Iterable[Any]) -> list[Any]:
        """Make hosts on workers that came later, remove environments that should move there, and return these.

        Args:
            candidates: those that may move, apart from those that were recreated.
        """
        self.pool.fill()
        both = {*candidates, *self.may_move}
        moving = self.should_move(sorted(both, key=lambda env: env.index))
        if moving:
            self.take_out(moving)
        return moving

    def should_move(self, candidates: Sequence[Any]) -> list[Any]:
        """Return those of some environments that are on a worker with too many."""
        if not candidates or len(self.pool.hosts) < 2:
            return []
        load = self._load()
        workers = {host.worker for host in self.pool.hosts}
        moving = []
        for env in candidates:
            emptiest = min(workers, key=load.__getitem__)
            if env.host is not None and load[env.host.worker] - load[emptiest] >= 2:
                moving.append(env)
                load[env.host.worker] -= 1
                load[emptiest] += 1
        return moving

    def take_out(self, envs: Sequence[Any]) -> None:
        """Close environments on their hosts. `make_unplaced` makes them on others."""
        requests: dict[HostRecord, Request] = {}
        for host in self.pool.hosts:
            here = [env for env in host.envs if env in envs]
            if here:
                requests[host] = partial(Hosted.close, indices=[env.index for env in here])
        self.pool.detach(envs)
        self.pool.ask(requests)
        for host in [host for host in self.pool.hosts if not host.envs]:
            if sum(other.worker == host.worker for other in self.pool.hosts) > 1:
                self.pool.drop(host)
