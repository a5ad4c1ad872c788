"""`Runner`: collects each segment of each group once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from arrayferry_cluster._dask.cluster import Cluster, Sent
from arrayferry_cluster._dask.groups import SPACES, Group, Position

AHEAD = 2
"""In mode "async", the maximum number of segments of a group that are in progress, or ready but not yet returned."""


class Runner:
    """Requests segments of all groups, and receives them.

    Args:
        cluster: the workers.
        weights: the first parameters of the policy.
        timeout: the maximum number of seconds without a worker.

    Attributes:
        groups: the groups of environments, each on one worker.
        weights: the newest weights.
        positions: the position of each group. The tuple is replaced when segments are returned to the user.
    """

    def __init__(self, cluster: Cluster, weights: Sent, timeout: float) -> None:
        self.groups: list[Group] = []
        self.weights = weights
        self.positions: tuple[Position, ...] = ()
        self._cluster = cluster
        self._timeout = timeout
        self._checked = time.monotonic()

    def spaces(self) -> list[Any]:
        """Make all ordinary environments, and return the observation and action space of each."""
        self.positions = tuple(Position(SPACES) for _ in self.groups)
        return [env_spaces for group in self.all_ready() for env_spaces in group.ready[0].reply]

    def all_ready(self) -> Sequence[Group]:
        """Wait until the next segment of each group is ready, and return all groups."""
        self._wait(1, all)
        return self.groups

    def first_ready(self) -> Sequence[Group]:
        """Wait until a segment is ready, and return the group whose segment arrived first, in a list.

        Request another segment of this group, so that the group need not wait for the user.
        """
        self._wait(AHEAD, any)
        ready_groups = [group for group in self.groups if group.ready]
        first_group = min(ready_groups, key=lambda group: group.ready[0].arrived)
        self._ask(first_group, AHEAD + 1)
        return [first_group]

    def after(self, groups: Sequence[Group]) -> tuple[Position, ...]:
        """Return the positions of all groups after the next segment of each of `groups` is returned to the user."""
        positions = list(self.positions)
        for group in groups:
            job = group.ready[0]
            positions[group.setup.index] = Position(job.number + 1, job.reply.state, job.call)
        return tuple(positions)

    def close(self) -> None:
        """Release all futures and actors, and close the cluster."""
        futures = [group.status.home for group in self.groups if group.status.home is not None]
        for group in self.groups:
            group.status = group.status._replace(jobs=(), home=None, actor=None)
            group.plan.release()
        self.positions = tuple(Position(position.number) for position in self.positions)
        self.weights.release()
        self._cluster.cancel(futures)
        self._cluster.close()

    def _wait(self, most: int, enough: Callable[[list[bool]], bool]) -> None:
        """Request and receive segments until enough groups are ready. Check that workers exist and that no group hangs.

        Args:
            most: the maximum number of segments of a group that are in progress, or ready but not yet returned.
            enough: a function of a list that has a bool for each group: whether a segment is ready. Returns whether to
                stop waiting.

        Raises:
            DistributedEnvError: a group failed. The ready segments of the other groups are not lost.
            arrayferry.OptionError: the call is in the thread of the client's event loop.
        """
        self._cluster.check_thread()
        begun_at = time.monotonic()
        for group, position in zip(self.groups, self.positions, strict=True):
            group.forget(position.number)
        while True:
            for group in self.groups:
                group.settle()
            for group in self.groups:
                self._ask(group, most)
            if enough([bool(group.ready) for group in self.groups]):
                return
            time.sleep(min(0.01, 0.0002 + (time.monotonic() - begun_at) / 40))
            if time.monotonic() - self._checked > min(self._timeout / 4, 5.0):
                self._cluster.check_workers(self._timeout)
                for group in self.groups:
                    group.check()
                self._checked = time.monotonic()

    def _ask(self, group: Group, most: int) -> None:
        position = self.positions[group.setup.index]
        while (num_jobs := len(group.status.jobs)) < most:
            if not group.ask(position.number + num_jobs, self.weights, position):
                return
