"""Records of each environment, of each group of a collector, and of each host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from arrayferry_gym._spaces.batches import rows_of

from .messages import EnvSetup, GroupSetup, Start


@dataclass(eq=False)
class Record:
    """The record of an environment or group that a host makes and has.

    Attributes:
        index: its number.
        host: the host that has it, None if none has.
        lost: whether its worker was lost and no result has reported that yet.
        may_move: whether it was recreated, so that it may move to a worker with fewer.
        remedy: what the user can do to continue when it cannot be used.
    """

    remedy: ClassVar[str]
    index: int
    host: HostRecord | None = field(default=None, kw_only=True)
    lost: bool = field(default=False, kw_only=True)
    may_move: bool = field(default=False, kw_only=True)

    @property
    def indices(self) -> Sequence[int]:
        """The numbers of its environments."""
        return (self.index,)

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do for it or to report."""
        return not (self.host is None or self.lost)


def seed_again(seed: int, index: int, times: int) -> int:
    """Return a seed for a recreated environment, derived from its own.

    Args:
        seed: its own.
        index: its number.
        times: how often it was recreated.
    """
    return int(np.random.SeedSequence([seed, index, times]).generate_state(1)[0])


@dataclass(eq=False)
class EnvRecord(Record):
    """The record of one environment of a vector environment.

    Attributes:
        factory: the function that makes it, pickled.
        attributes: what `set_attr` has set, in this order.
        seed: the last seed that it was given.
        options: the options of its last reset.
        times_remade: how often it was recreated, on which its new seeds depend.
        first: the observation and the info of its first reset since it was recreated, until they are
            returned.
        unseen: whether no result has shown the episode that it began when it was recreated.
    """

    remedy = "call reset"
    factory: bytes
    attributes: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    options: dict[str, Any] | None = None
    times_remade: int = 0
    first: tuple[Any, dict[str, Any]] | None = None
    unseen: bool = False

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to do for it or to report."""
        return super().settled and not (self.first or self.unseen)

    def take_first(self) -> tuple[Any, dict[str, Any]]:
        """Return the results of its first reset since it was recreated, and forget them."""
        assert self.first is not None
        first, self.first = self.first, None
        return first

    def new_seed(self) -> int | None:
        """Return a seed derived from its own, None if it has none."""
        return None if self.seed is None else seed_again(self.seed, self.index, self.times_remade)

    def setup(self, *, reset: bool = False, reset_pending: bool = False) -> EnvSetup:
        """Return what a host needs to recreate it.

        Args:
            reset: whether to reset it at once, with a new seed.
            reset_pending: whether its next step is the reset of NEXT_STEP mode.
        """
        self.times_remade += 1
        self.unseen = True
        start = Start(self.new_seed(), self.options) if reset else None
        return EnvSetup(self.index, self.factory, dict(self.attributes), start, reset_pending)


@dataclass(eq=False)
class GroupRecord(Record):
    """The record of one group of a collector.

    Attributes:
        setup: what a host needs to make it for the first time.
        restarts: how often it was restarted.
        anew: the segment with which it was last restarted, None if it never was.
        state: the state of `Hosted.save` from which it continues where it is made, None to begin.
    """

    remedy = "ask for the next trajectories: its group begins anew"
    setup: GroupSetup
    restarts: int = 0
    anew: int | None = None
    state: Any = None

    @property
    def indices(self) -> Sequence[int]:
        """The numbers of its environments."""
        return self.setup.indices

    def restart(self, number: int) -> None:
        """Note that it is restarted with a segment."""
        self.anew = number
        self.state = None
        self.lost = False
        self.restarts += 1  # last, as answers to earlier requests do not count from then on


class HostRecord:
    """The record of a host and its environments, or groups of these that a collector has made.

    Args:
        handle: the engine's own object for it.
        worker: the worker that it is on.

    Attributes:
        envs: its environments or groups, in ascending order.
        indices: the numbers of the environments.
        rows: an index for their rows in a batch.
        version: the version of the weights that it has, -1 if it has none.
    """

    def __init__(self, handle: Any, worker: str) -> None:
        self.handle = handle
        self.worker = worker
        self.version = -1
        self.envs: list[Any] = []
        self.indices: tuple[int, ...] = ()
        self.rows = rows_of(())

    def add(self, env: Record) -> None:
        """Note that its host has an environment."""
        self._set([*self.envs, env])
        env.host = self

    def remove(self, envs: Iterable[Record]) -> None:
        """Note that its host no longer has some environments."""
        for env in envs:
            env.host = None
        self._set([env for env in self.envs if env.host is self])

    def _set(self, envs: list[Any]) -> None:
        self.envs = sorted(envs, key=lambda env: env.index)
        self.indices = tuple(index for env in self.envs for index in env.indices)
        self.rows = rows_of(self.indices)
