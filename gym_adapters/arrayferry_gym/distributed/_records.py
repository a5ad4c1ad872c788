"""`EnvRecord` and `Group`: what is known here of each environment, and of each host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._messages import EnvSetup, Start

__all__ = ["EnvRecord", "Group"]


@dataclass(eq=False)
class EnvRecord:
    """All that is known here of one environment.

    Attributes:
        index: its number in the vector environment.
        factory: the function that makes it, pickled.
        attributes: what `set_attr` has set, in this order.
        seed: the last seed that it was given.
        options: the options of its last reset.
        group: the group that it is in, None if no host has it.
        times_remade: how often it was made again, which its new seeds depend on.
        lost: whether its worker was lost and no result has reported that yet.
        may_move: whether it was made again, so that it may move to a worker with fewer environments.
        first: the observation and the info of its first reset since it was made again, until they are
            returned.
        unseen: whether no result has shown the episode that it began when it was made again.
    """

    index: int
    factory: bytes
    attributes: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    options: dict[str, Any] | None = None
    group: Group | None = None
    times_remade: int = 0
    lost: bool = False
    may_move: bool = False
    first: tuple[Any, dict[str, Any]] | None = None
    unseen: bool = False

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do for it or to report."""
        return not (self.group is None or self.lost or self.may_move or self.first or self.unseen)

    def take_first(self) -> tuple[Any, dict[str, Any]]:
        """Return the results of its first reset since it was made again, and forget them."""
        assert self.first is not None
        first, self.first = self.first, None
        return first

    def new_seed(self) -> int | None:
        """Return a seed that follows from its own, None if it has none."""
        if self.seed is None:
            return None
        entropy = [self.seed, self.index, self.times_remade]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def setup(self, *, reset: bool = False, reset_pending: bool = False) -> EnvSetup:
        """Return what a host needs to make it again.

        Args:
            reset: whether to reset it at once, with a new seed.
            reset_pending: whether its next step is the reset of NEXT_STEP mode.
        """
        self.times_remade += 1
        self.unseen = True
        start = Start(self.new_seed(), self.options) if reset else None
        return EnvSetup(self.index, self.factory, dict(self.attributes), start, reset_pending)


class Group:
    """A host and its environments.

    Args:
        host: what the engine calls it by.
        worker: the worker that it is on.

    Attributes:
        envs: its environments, in ascending order.
        indices: their numbers.
    """

    def __init__(self, host: Any, worker: str) -> None:
        self.host = host
        self.worker = worker
        self.envs: list[EnvRecord] = []
        self.indices: tuple[int, ...] = ()

    def add(self, env: EnvRecord) -> None:
        """Note that its host has an environment."""
        env.group = self
        self._set([*self.envs, env])

    def remove(self, envs: Iterable[EnvRecord]) -> None:
        """Note that its host has some environments no longer."""
        for env in envs:
            env.group = None
        self._set([env for env in self.envs if env.group is self])

    def _set(self, envs: list[EnvRecord]) -> None:
        self.envs = sorted(envs, key=lambda env: env.index)
        self.indices = tuple(env.index for env in self.envs)
