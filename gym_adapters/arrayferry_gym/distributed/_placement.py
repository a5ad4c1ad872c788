"""`Placement`: which host has which environment, and how those that were lost are made again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ._engine import Engine
from ._errors import NoWorkerError
from ._failures import named
from ._messages import Configure, Description, Drop, EnvSetup, MadeEnv, Make, Request
from ._pool import HostPool
from ._records import EnvRecord, Group

__all__ = ["Placement"]

_LOOK = 1.0
"""Seconds between two looks for workers that have come back."""
_DEATHS = 3
"""Workers that may die while they make the same environment."""


class Placement:
    """Distributes environments over hosts.

    Args:
        engine: makes and calls the hosts.
        envs: the environments.
        groups: the number of hosts, None for one for each worker.
        timeout: seconds that a call may take.
        min_workers: how many workers there must be before environments are made for the first time.
    """

    def __init__(
        self,
        engine: Engine,
        envs: list[EnvRecord],
        groups: int | None,
        timeout: float,
        min_workers: int,
    ) -> None:
        self._pool = HostPool(engine, envs, groups, timeout)
        self._envs = envs
        self._min_workers = min_workers
        self._workers_at_first = 0
        self._next_look = 0.0

    @property
    def groups(self) -> list[Group]:
        """The hosts that are in use, and their environments."""
        return self._pool.groups

    @property
    def unsettled(self) -> list[EnvRecord]:
        """The environments with something left to do or to report, usually none."""
        return self._pool.unsettled

    def _select(self, matches: Callable[[EnvRecord], bool]) -> list[EnvRecord]:
        return sorted(filter(matches, self._pool.unsettled), key=lambda env: env.index)

    @property
    def unplaced(self) -> list[EnvRecord]:
        """The environments that no host has."""
        return self._select(lambda env: env.group is None)

    @property
    def lost(self) -> list[EnvRecord]:
        """The environments whose loss no result has reported yet."""
        return self._select(lambda env: env.lost)

    @property
    def may_move(self) -> list[EnvRecord]:
        """The environments that were made again, and may move to a worker with fewer environments."""
        return self._select(lambda env: env.may_move)

    def forget_settled(self) -> None:
        """Drop from `unsettled` what is settled."""
        if self._pool.unsettled:
            self._pool.unsettled = [env for env in self._pool.unsettled if not env.settled]

    def ask(self, requests: Mapping[Group, Request]) -> dict[Group, Any]:
        """Send requests to several hosts at once, as `HostPool.ask` does."""
        return self._pool.ask(requests)

    def configure(self, configuration: Configure) -> None:
        """Configure all hosts, and those that are made later."""
        self._pool.configure(configuration)

    def close(self) -> None:
        """Close the environments, and forget the hosts. It does not wait long."""
        self._pool.close(min(self._pool.timeout, 5.0))

    def make_all(self) -> list[Description]:
        """Make all environments for the first time, and return their descriptions."""
        self._pool.await_workers(self._min_workers)
        self._pool.await_host(self._envs)
        groups, count = self._pool.groups, len(self._envs)
        self._workers_at_first = len({group.worker for group in groups})
        planned: dict[Group, list[EnvRecord]] = {group: [] for group in groups}
        for env in self._envs:
            planned[groups[env.index * len(groups) // count]].append(env)
        made = self._make(
            lambda env: EnvSetup(env.index, env.factory), planned=planned, describe=True
        )
        for env in self._envs:
            env.lost = env.may_move = False
        self.forget_settled()
        return [made[env].description for env in self._envs]

    def make_unplaced(self, setup: Callable[[EnvRecord], EnvSetup]) -> list[EnvRecord]:
        """Make all environments that no host has, on the hosts that have the fewest.

        Each has the results of its first reset afterwards.

        Args:
            setup: returns what a host needs to make an environment.

        Returns:
            The environments that were made.

        Raises:
            NoWorkerError: there is no worker for them.
        """
        made = self._make(setup)
        for env, reply in made.items():
            env.first = reply.observation, reply.info
        return list(made)

    def _make(
        self,
        setup: Callable[[EnvRecord], EnvSetup],
        *,
        planned: Mapping[Group, list[EnvRecord]] | None = None,
        describe: bool = False,
    ) -> dict[EnvRecord, Any]:
        """Make all environments that no host has, one at a time on each host, so that each has the whole timeout.

        Args:
            setup: returns what a host needs to make an environment.
            planned: which of them each host makes at first. The others go where fewest are.
            describe: whether descriptions are wanted.
        """
        made: dict[EnvRecord, MadeEnv] = {}
        deaths: Counter[EnvRecord] = Counter()
        plan = dict(planned or {})
        while unplaced := self.unplaced:
            self._pool.await_host(unplaced)
            suspects = [env for env in unplaced if deaths[env]]
            if suspects:  # alone, so that no other one dies with it
                plan = {self._emptiest(self._load()): suspects[:1]}
            plan = self._still_possible(plan) or self._spread_evenly(unplaced)
            now = {group: envs[0] for group, envs in plan.items()}
            replies = self._pool.ask(
                {group: Make(setup(env), describe) for group, env in now.items()}
            )
            for group, reply in replies.items():
                env = now[group]
                made[env] = reply
                group.add(env)
                env.may_move = True
                del deaths[env]
            for group, env in now.items():
                if group not in replies:
                    deaths[env] += 1
                    if deaths[env] >= _DEATHS:
                        raise NoWorkerError(
                            f"{_DEATHS} workers died while they made {named([env.index])} again",
                            remedy="It seems to end its process. Correct it, and call reset.",
                            indices=(env.index,),
                        )
        return made

    def _still_possible(
        self, plan: Mapping[Group, Sequence[EnvRecord]]
    ) -> dict[Group, list[EnvRecord]]:
        left = {group: [env for env in envs if env.group is None] for group, envs in plan.items()}
        return {group: envs for group, envs in left.items() if envs and group in self._pool.groups}

    def _spread_evenly(self, envs: Iterable[EnvRecord]) -> dict[Group, list[EnvRecord]]:
        plan: dict[Group, list[EnvRecord]] = {}
        load = self._load()
        for env in envs:
            group = self._emptiest(load)
            plan.setdefault(group, []).append(env)
            load.update([group.worker, group])
        return plan

    def _emptiest(self, load: Counter[Any]) -> Group:
        return min(self._pool.groups, key=lambda group: (load[group.worker], load[group]))

    def _load(self) -> Counter[Any]:
        """Return how many environments each group and each worker has."""
        load: Counter[Any] = Counter()
        for group in self._pool.groups:
            load[group] += len(group.indices)
            load[group.worker] += len(group.indices)
        return load

    def look_for_workers(self) -> None:
        """Make hosts on workers that have come back, if environments may move there. It is cheap."""
        now = time.monotonic()
        movable = self.may_move
        if not movable or now < self._next_look:
            return
        self._next_look = now + _LOOK
        self._pool.fill()
        load = self._load()
        loads = [load[worker] for worker in {group.worker for group in self._pool.groups}]
        if len(loads) >= self._workers_at_first and loads and max(loads) - min(loads) <= 1:
            for env in movable:
                env.may_move = False

    def spread(self, candidates: Iterable[EnvRecord]) -> list[EnvRecord]:
        """Make hosts on workers that came later, and return which environments should move.

        Args:
            candidates: those that may move, apart from those that were made again.
        """
        self._pool.fill()
        both = {*candidates, *self.may_move}
        return self.should_move(sorted(both, key=lambda env: env.index))

    def should_move(
        self, candidates: Sequence[EnvRecord], *, at_once: bool = True
    ) -> list[EnvRecord]:
        """Return those of some environments that are on a worker with too many.

        Args:
            candidates: the environments.
            at_once: whether all of those that are returned will move, so that they must not be too many.
        """
        if not candidates or len(self._pool.groups) < 2:
            return []
        load = self._load()
        workers = {group.worker for group in self._pool.groups}
        moving = []
        for env in candidates:
            emptiest = min(workers, key=load.__getitem__)
            if env.group is not None and load[env.group.worker] - load[emptiest] >= 2:
                moving.append(env)
                if at_once:
                    load[env.group.worker] -= 1
                    load[emptiest] += 1
        return moving

    def take_out(self, envs: Sequence[EnvRecord]) -> None:
        """Close environments where they are. `make_unplaced` makes them on other hosts."""
        requests: dict[Group, Request] = {}
        for group in self._pool.groups:
            here = [env for env in group.envs if env in envs]
            if here:
                requests[group] = Drop([env.index for env in here])
        self._pool.detach(envs)
        self._pool.ask(requests)
        for group in [group for group in self._pool.groups if not group.envs]:
            if sum(other.worker == group.worker for other in self._pool.groups) > 1:
                self._pool.drop(group)
