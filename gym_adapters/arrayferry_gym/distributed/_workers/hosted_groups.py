"""`HostedGroups`: the groups of a collector in a host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import arrayferry as af

from .env_group import EnvGroup
from .hosted_group import HostedGroup
from .messages import Collect, Description, GroupPlace, MakeGroup, Plan, Save, Segment, from_bytes
from .progress import Progress, setting_up


class HostedGroups(dict[int, HostedGroup]):
    """The groups of a collector in a host, by their numbers.

    Args:
        progress: where the host is.
        keep: stores a tree of arrays in this process and returns a reference to it.
    """

    def __init__(self, progress: Progress, keep: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self._progress = progress
        self._keep = keep
        self._weights: tuple[int, Any] = (-1, None)
        self._plan: Any = None

    def make(self, request: MakeGroup) -> list[Description] | None:
        """Make a group."""
        setup = request.setup
        self._progress.place = GroupPlace(
            setup.index, range(setup.first, setup.first + setup.num_envs)
        )
        if self._plan is None:  # it is that of all groups, so that JAX compiles once for them
            with setting_up():
                self._plan = from_bytes(setup.plan)
        plan: Plan = self._plan
        if plan.env is None:
            group: HostedGroup = EnvGroup(setup, plan, self._progress)
        else:
            from .functional_group import FunctionalGroup

            group = FunctionalGroup(setup, plan, self._progress)
        self[setup.index] = group
        return group.describe() if request.describe else None

    def collect(self, request: Collect) -> Segment | None:
        """Collect a segment."""
        group = self[request.index]
        self._progress.place = GroupPlace(request.index, group.indices, request.number)
        if request.weights is not None:
            with setting_up():
                self._weights = request.version, from_bytes(request.weights)
        if group.restarts != request.restarts:
            group.restart(request.restarts)
        elif group.failed:
            return None
        begun = time.perf_counter()
        try:
            trajectories = group.collect(request.number, request.needed, *self._weights)
        except BaseException:
            group.failed = True
            raise
        arrays, layout = af.flatten(trajectories)
        kept = tuple(arrays)
        if request.keep and self._keep is not None:
            kept = self._keep(kept)
        return Segment(layout, kept, time.perf_counter() - begun)

    def save(self, request: Save) -> Any:
        """Return the state from which a group began a segment."""
        group = self[request.index]
        self._progress.place = GroupPlace(request.index, group.indices)
        return group.save(request.number)
