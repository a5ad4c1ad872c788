"""`GroupRunner`: segments of groups on workers, even if workers are lost.

Ctrl-C may come at any line. So state changes by single assignments, and repeated work is recognized.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import arrayferry as af
from arrayferry_gym.distributed._placing.errors import NoWorkerError
from arrayferry_gym.distributed._placing.placement import Placement
from arrayferry_gym.distributed._placing.pool import Sent
from arrayferry_gym.distributed._workers.host import Hosted
from arrayferry_gym.distributed._workers.messages import (
    Description,
    Request,
    Segment,
    SegmentSetup,
)
from arrayferry_gym.distributed._workers.records import GroupRecord

from .segments import GroupSegment
from .stats import Counts

Result = TypeVar("Result")

AHEAD = 2
"""The maximum number of segments of a group in progress or not yet returned."""


class Weights(NamedTuple):
    """The parameters of the policy, pickled, and their version."""

    version: int
    data: bytes


@dataclass(frozen=True, eq=False)
class _Asked:
    """A requested segment."""

    group: GroupRecord
    setup: SegmentSetup
    sent: Sent


class _Answered(NamedTuple):
    """The answers so far.

    Attributes:
        ready: the segments that were not returned yet, in the order of their arrival.
        taken: for each group, how many segments were returned.
    """

    ready: tuple[GroupSegment, ...]
    taken: tuple[int, ...]


class GroupRunner:
    """Collects segments of groups, and recreates groups that are lost.

    Args:
        groups: the groups. They have been made.
        placement: the hosts that have them.
        keep: whether the arrays stay on the workers.
        weights: the first parameters of the policy.

    Attributes:
        weights: the newest weights.
        counts: the counts so far.
    """

    def __init__(
        self, groups: Sequence[GroupRecord], placement: Placement, keep: bool, weights: Weights
    ) -> None:
        self._groups = groups
        self._placement = placement
        self._engine = placement.pool.engine
        self._keep = keep
        self.weights = weights
        self.counts = Counts()
        self._asked: list[_Asked] = []  # not answered yet, in the order of the requests
        self._answered = _Answered((), (0,) * len(groups))

    def make_all(self) -> list[Description]:
        """Make all groups for the first time, and return the descriptions of all environments."""
        return [each for made in self._placement.make_all(self._make) for each in made]

    def _make(self, group: GroupRecord) -> Request:
        setup = replace(group.setup, restarts=group.restarts, state=group.state)
        return partial(Hosted.make, setup=setup)

    def all_ready(self) -> Sequence[GroupSegment]:
        """Wait for the next segments of all groups, and return them. They count as returned with `take`."""
        while True:
            self._ask(1)
            ready = {each.group: each for each in reversed(self._answered.ready)}
            if len(ready) == len(self._groups):
                return [ready[group] for group in self._groups]
            self._receive()

    def first_ready(self) -> Sequence[GroupSegment]:
        """Wait for a segment, and return the one that arrived first. It counts as returned with `take`."""
        while True:
            first = self._answered.ready[:1]
            self._ask(AHEAD, first)  # what comes after it is collected while it is used
            if first and first == self._answered.ready[:1]:
                return first
            if not self._answered.ready:
                self._receive()

    def take(self, segments: Sequence[GroupSegment], result: Result) -> Result:
        """Return the result made from segments, which count as returned from then on. Ctrl-C prevents both or neither."""
        before = self._answered
        taken = list(before.taken)
        for each in segments:
            taken[each.group.index] += 1
        after = _Answered(tuple(x for x in before.ready if x not in segments), tuple(taken))
        try:
            self._answered = after
            return result
        except BaseException:
            self._answered = before
            raise

    def _ready(self, group: GroupRecord) -> int:
        """Return how many segments of a group were answered, and not returned yet."""
        return sum(each.group is group for each in self._answered.ready)

    def _next(self, group: GroupRecord) -> int:
        """Return the number of the first segment of a group that was not answered."""
        return self._answered.taken[group.index] + self._ready(group)

    def _under_way(self, group: GroupRecord) -> list[_Asked]:
        return [asked for asked in self._asked if asked.group is group]

    def _ask(self, most: int, returned: Sequence[GroupSegment] = ()) -> None:
        """Request segments, and recreate groups that were lost.

        Args:
            most: how many segments of a group may be in progress or not yet returned.
            returned: those that will be returned next, which do not count.
        """
        placement = self._placement
        moving = self._moving()
        if placement.unplaced:
            self._make_unplaced()
        for group in self._groups:
            pending = len(self._under_way(group)) + self._ready(group)
            pending -= sum(each.group is group for each in returned)
            for _ in range(most - pending if group not in moving else 0):
                self._ask_for_one(group)
        placement.pool.start([asked.sent for asked in self._asked])

    def _ask_for_one(self, group: GroupRecord) -> None:
        """Request the first segment of a group that was not requested yet."""
        host, (version, data) = group.host, self.weights
        assert host is not None
        asked = [asked.setup for asked in self._under_way(group)]
        after = [setup.number + 1 for setup in asked if setup.restarts == group.restarts]
        setup = SegmentSetup(
            group=group.index,
            number=max([self._next(group), *after]),
            restarts=group.restarts,
            needed=self._answered.taken[group.index],
            version=version,
            weights=None if host.version == version else data,
        )
        (sent,) = self._placement.pool.send({host: partial(Hosted.collect, setup=setup)})
        self._asked.append(_Asked(group, setup, sent))
        host.version = version

    def _make_unplaced(self) -> None:
        """Recreate the groups that no host has."""
        while unplaced := self._placement.unplaced:  # others may be lost while these are made
            for group in unplaced:
                self._settle(group)
            self._placement.make_unplaced(self._make, envs=unplaced)
            for group in unplaced:
                group.state, group.lost = None, False
        self._placement.forget_settled()

    def _settle(self, group: GroupRecord) -> None:
        """Find out whether a group that no host has continues from its state or is restarted."""
        for asked in self._under_way(group):  # some may have been answered before that
            self._receive_one(asked)
        if self._keep and group.lost:  # arrays of earlier answers are gone too
            ready, taken = self._answered
            left = tuple(each for each in ready if each.group is not group)
            self._answered = _Answered(left, taken)
        if group.state is None or group.state["number"] != self._next(group):
            self.counts.lost += group.lost
            group.restart(self._next(group))

    def _moving(self) -> set[GroupRecord]:
        """Let recreated groups move to other workers, and return those that still wait for their segments."""
        placement = self._placement
        if not placement.may_move:
            return set()
        placement.look_for_workers()
        moving = set(placement.should_move(placement.may_move))
        for group in [group for group in moving if not self._under_way(group)]:
            group.state = self._state(group, self._next(group))
            placement.take_out([group])
            moving.remove(group)
        return moving

    def _state(self, group: GroupRecord, number: int) -> Any:
        """Return the state from which a group begins a segment, None if it is not known."""
        if group.host is None:
            return None
        replies = self._placement.pool.ask(
            {group.host: partial(Hosted.save, index=group.index, number=number)}
        )
        return next(iter(replies.values()), None)

    def _receive(self) -> None:
        """Wait for the first answer.

        Raises:
            DistributedEnvError: a group failed. The answers of the others are kept.
        """
        if not self._asked:
            return
        answered = self._placement.pool.wait([asked.sent for asked in self._asked], 1)
        waiting: set[GroupRecord] = set()  # for an earlier answer
        failed: Exception | None = None
        for asked, over in zip(list(self._asked), answered, strict=True):
            if not over:
                waiting.add(asked.group)
            elif asked.group not in waiting:
                try:
                    self._receive_one(asked)
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _receive_one(self, asked: _Asked) -> None:
        """Receive the answer to the first request for a segment of a group."""
        group, setup, sent = asked.group, asked.setup, asked.sent
        counts = setup.restarts == group.restarts and setup.number == self._next(group)
        try:
            replies = self._placement.pool.receive([sent])
            segment: Segment | None = next(iter(replies.values()), None)
            # if arrays stay with a host that is gone, they are gone too
            if segment is not None and not (self._keep and sent.host not in self._placement.hosts):
                if counts:
                    self._add(asked, segment)
                elif self._keep:  # the workers free them when no Dask array of them is left
                    with contextlib.suppress(NoWorkerError):  # they are gone already
                        self._engine.assemble([segment.arrays])
        except Exception:
            sent.host.version = -1  # its weights are not known
            if counts:
                group.restart(self._next(group))
            self._asked.remove(asked)
            raise
        except (
            BaseException
        ):  # Ctrl-C. It is received again, but nobody may hold its arrays on the workers now
            if counts and self._keep:
                group.restart(self._next(group))
            raise
        self._asked.remove(asked)

    def _add(self, asked: _Asked, segment: Segment) -> None:
        """Add a segment to those that are ready."""
        group, setup, host = asked.group, asked.setup, asked.sent.host
        arrays = segment.arrays
        if self._keep:
            try:
                (arrays,) = self._engine.assemble([arrays])
            except NoWorkerError:  # its arrays are gone, so the group counts as lost
                self._placement.pool.lose(host)
                return
        steps = segment.layout.unflatten(list(arrays))
        answered = GroupSegment(group, setup.version, setup.number == group.anew, steps)
        ready, taken = self._answered
        self._answered = _Answered((*ready, answered), taken)
        self.counts.add(host.worker, steps.began.size, segment.seconds, setup.version)

    def forget(self) -> None:
        """Forget segments that were not returned, so that none of their arrays stay on the workers."""
        self._asked = []
        self._answered = _Answered((), self._answered.taken)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all groups."""
        if self._placement.unplaced:
            self._make_unplaced()
        return {
            "version": self.weights.version,
            "numbers": list(self._answered.taken),
            "restarts": [group.restarts for group in self._groups],
            "states": [
                self._state(group, number)
                for group, number in zip(self._groups, self._answered.taken, strict=True)
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of all groups."""
        version, numbers, restarts, states = _checked(state, len(self._groups))
        for asked in list(self._asked):
            self._placement.pool.wait([asked.sent], 1)
            with contextlib.suppress(Exception):  # its segments are no longer needed
                self._receive_one(asked)
        if self._keep:
            self._engine.discard()
        self._placement.take_out([group for group in self._groups if group.host is not None])
        self._answered = _Answered((), numbers)
        for index, group in enumerate(self._groups):
            group.restarts, group.anew = restarts[index], None
            if states[index] is None and numbers[index]:
                group.restart(numbers[index])
            group.state = states[index]
        self.weights = Weights(version, self.weights.data)
        for host in self._placement.hosts:
            host.version = -1
        self._placement.make_unplaced(self._make)
        for group in self._groups:
            group.state, group.may_move = None, False
        self._placement.forget_settled()


def _checked(
    state: dict[str, Any], groups: int
) -> tuple[int, tuple[int, ...], tuple[int, ...], list[Any]]:
    """Return the version of the weights, and of each group the number of the next segment, the restarts and the state.

    Raises:
        arrayferry.OptionError: `state_dict` did not return that.
    """
    try:
        version = operator.index(state["version"])
        numbers = tuple(map(operator.index, state["numbers"]))
        restarts = tuple(map(operator.index, state["restarts"]))
        states = list(state["states"])
        own = [
            saved is None or saved["number"] == number
            for saved, number in zip(states, numbers, strict=True)
        ]
        if (
            not len(own) == len(restarts) == groups
            or min(version, *numbers, *restarts) < 0
            or not all(own)
        ):
            raise ValueError
    except (KeyError, IndexError, TypeError, ValueError):
        raise af.OptionError(
            f"{state!r:.80} is not a state of a collector", remedy="Pass a result of state_dict()."
        ) from None
    return version, numbers, restarts, states
