"""`GroupRunner`: segments of groups on workers, whatever happens to the workers.

Ctrl-C may come at any line. So what is known changes by single assignments, and what was done twice is seen.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import arrayferry as af
from arrayferry_gym.distributed._placing.engine import Engine
from arrayferry_gym.distributed._placing.errors import NoWorkerError
from arrayferry_gym.distributed._placing.placement import Placement
from arrayferry_gym.distributed._placing.pool import Sent
from arrayferry_gym.distributed._workers.messages import (
    Collect,
    GroupSetup,
    MakeGroup,
    Save,
    Segment,
    to_bytes,
)
from arrayferry_gym.distributed._workers.records import GroupRecord
from arrayferry_gym.distributed._workers.trajectories import Trajectories

from .segments import Origin
from .stats import Counts

Result = TypeVar("Result")

AHEAD = 2
"""Segments of a group that may be under way or not yet returned."""


class Weights(NamedTuple):
    """The parameters of the policy, pickled, and their version."""

    version: int
    data: bytes


@dataclass(frozen=True, eq=False)
class _Ready:
    """A segment that was answered, and not returned yet."""

    group: GroupRecord
    trajectories: Trajectories
    origin: Origin


class _Answered(NamedTuple):
    """What was answered.

    Attributes:
        ready: the segments that were not returned yet, in the order in which they came.
        taken: for each group, how many segments were returned.
    """

    ready: tuple[_Ready, ...]
    taken: tuple[int, ...]


class GroupRunner:
    """Collects segments of groups, and makes those again that are lost.

    Args:
        groups: the groups. They have been made.
        placement: the hosts that have them.
        engine: makes and calls the hosts.
        plan: what they do, pickled.
        keep: whether the arrays stay on the workers.
        weights: the first parameters of the policy.

    Attributes:
        weights: the newest.
        counts: what was done so far.
    """

    def __init__(
        self,
        groups: Sequence[GroupRecord],
        placement: Placement,
        engine: Engine,
        plan: bytes,
        keep: bool,
        weights: Weights,
    ) -> None:
        self._groups = groups
        self._placement = placement
        self._engine = engine
        self._plan = plan
        self._keep = keep
        self.weights = weights
        self.counts = Counts()
        self._sent: list[
            tuple[GroupRecord, Sent]
        ] = []  # not answered yet, in the order in which they were asked
        self._answered = _Answered((), (0,) * len(groups))

    def make_all(self) -> list[Any]:
        """Make all groups for the first time, and return the descriptions of all environments."""
        made = self._placement.make_all(lambda group: self._make(group, describe=True))
        return [description for descriptions in made for description in descriptions]

    def _make(self, group: GroupRecord, describe: bool = False) -> MakeGroup:
        state = None if group.state is None else group.state[1]
        setup = GroupSetup(
            group.index, group.first, group.num_envs, group.factories, self._plan,
            group.policy_state, group.restarts, state,
        )  # fmt: skip
        return MakeGroup(setup, describe)

    def all_ready(self) -> Sequence[_Ready]:
        """Wait for the next segments of all groups, and return them. They count as returned with `take`."""
        while True:
            self._ask(1)
            ready = {each.group: each for each in reversed(self._answered.ready)}
            if len(ready) == len(self._groups):
                return [ready[group] for group in self._groups]
            self._receive()

    def first_ready(self) -> Sequence[_Ready]:
        """Wait for a segment, and return the one that came first. It counts as returned with `take`."""
        while True:
            first = self._answered.ready[:1]
            self._ask(AHEAD, first)  # what comes after it is collected while it is used
            if first and first == self._answered.ready[:1]:
                return first
            if not self._answered.ready:
                self._receive()

    def take(self, segments: Sequence[_Ready], result: Result) -> Result:
        """Return what was made of segments. With that they count as returned: if Ctrl-C comes, neither is done."""
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

    def _under_way(self, group: GroupRecord) -> list[tuple[GroupRecord, Sent]]:
        return [pair for pair in self._sent if pair[0] is group]

    def _ask(self, most: int, returned: Sequence[_Ready] = ()) -> None:
        """Ask for segments, and make groups that were lost.

        Args:
            most: how many segments of a group may be under way or not yet returned.
            returned: those that will be returned next, which do not count.
        """
        placement = self._placement
        moving = self._moving()
        if placement.unplaced:
            self._make_unplaced()
        for group in self._groups:
            under_way = len(self._under_way(group))
            under_way += self._ready(group) - sum(each.group is group for each in returned)
            for _ in range(most - under_way if group not in moving else 0):
                host = group.host
                assert host is not None
                version, data = self.weights
                request = Collect(
                    group.index, self._next_to_ask(group), group.restarts,
                    self._answered.taken[group.index], version,
                    None if host.version == version else data, self._keep,
                )  # fmt: skip
                (sent,) = placement.pool.send({host: request})
                self._sent.append((group, sent))
                host.version = version
        placement.pool.start([sent for _, sent in self._sent])

    def _next_to_ask(self, group: GroupRecord) -> int:
        """Return the number of the first segment of a group that was not asked for."""
        asked: list[Any] = [sent.request for _, sent in self._under_way(group)]
        after: list[int] = [x.number + 1 for x in asked if x.restarts == group.restarts]
        return max([self._next(group), *after])

    def _make_unplaced(self) -> None:
        """Make the groups again that no host has."""
        while unplaced := self._placement.unplaced:  # others may be lost while these are made
            for group in unplaced:
                self._settle(group)
            self._placement.make_unplaced(self._make, envs=unplaced)
            for group in unplaced:
                group.state, group.lost = None, False
        self._placement.forget_settled()

    def _settle(self, group: GroupRecord) -> None:
        """Find out whether a group that no host has goes on from its state or begins anew."""
        for pair in self._under_way(group):  # some may have been answered before that
            self._receive_one(*pair)
        if self._keep and group.lost:  # arrays of earlier answers are gone too
            ready, taken = self._answered
            left = tuple(each for each in ready if each.group is not group)
            self._answered = _Answered(left, taken)
        if group.state is None or group.state[0] != self._next(group):
            self.counts.lost += group.lost
            group.restart(self._next(group))

    def _moving(self) -> set[GroupRecord]:
        """Let groups that were made again move to other workers, and return those that wait for their segments."""
        placement = self._placement
        if not placement.may_move:
            return set()
        placement.look_for_workers()
        moving = set(placement.should_move(placement.may_move))
        for group in [group for group in moving if not self._under_way(group)]:
            number = self._next(group)
            state = self._state(group, number)
            group.state = None if state is None else (number, state)
            placement.take_out([group])
            moving.remove(group)
        return moving

    def _state(self, group: GroupRecord, number: int) -> Any:
        """Return the state from which a group begins a segment, None if it is not known."""
        if group.host is None:
            return None
        replies = self._placement.pool.ask({group.host: Save(group.index, number)})
        return next(iter(replies.values()), None)

    def _receive(self) -> None:
        """Wait for the first answer.

        Raises:
            DistributedEnvError: a group failed. What the others have answered is kept.
        """
        if not self._sent:
            return
        answered = self._placement.pool.wait([sent for _, sent in self._sent], 1)
        waiting: set[GroupRecord] = set()  # for an earlier answer
        failed: Exception | None = None
        for (group, sent), over in zip(list(self._sent), answered, strict=True):
            if not over:
                waiting.add(group)
            elif group not in waiting:
                try:
                    self._receive_one(group, sent)
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _receive_one(self, group: GroupRecord, sent: Sent) -> None:
        """Take the answer to the first request for a segment of a group."""
        request: Any = sent.request
        counts = request.restarts == group.restarts and request.number == self._next(group)
        try:
            replies = self._placement.pool.receive([sent])
            segment: Segment | None = next(iter(replies.values()), None)
            # if arrays stay with a host that is gone, they are gone too
            if segment is not None and not (self._keep and self._is_gone(sent)):
                if counts:
                    self._add(group, sent, segment)
                elif self._keep:
                    self._free(segment)
        except Exception:
            sent.host.version = -1  # what it has is not known
            if counts:
                group.restart(self._next(group))
            self._sent.remove((group, sent))
            raise
        except (
            BaseException
        ):  # Ctrl-C. It is received again, but nobody may hold its arrays on the workers now
            if counts and self._keep:
                group.restart(self._next(group))
            raise
        self._sent.remove((group, sent))

    def _is_gone(self, sent: Sent) -> bool:
        return sent.host not in self._placement.hosts

    def _add(self, group: GroupRecord, sent: Sent, segment: Segment) -> None:
        """Add a segment to those that are ready."""
        request: Any = sent.request
        arrays = segment.arrays
        if self._keep:
            try:
                (arrays,) = self._engine.assemble([arrays])
            except NoWorkerError:  # its arrays are gone, so that the group is one that was lost
                self._placement.pool.lose(sent.host)
                return
        trajectories = segment.layout.unflatten(list(arrays))
        origin = Origin(group.index, group.num_envs, request.version, request.number == group.anew)
        steps = trajectories.began.shape[0] * group.num_envs
        ready, taken = self._answered
        self._answered = _Answered((*ready, _Ready(group, trajectories, origin)), taken)
        self.counts.add(sent.host.worker, steps, segment.seconds, request.version)

    def _free(self, segment: Segment) -> None:
        """Free the arrays of a segment that nobody needs: the workers do when no Dask array of them is left."""
        try:
            self._engine.assemble([segment.arrays])
        except NoWorkerError:  # they are gone already
            pass

    def forget(self) -> None:
        """Forget what was not returned, so that nothing of it stays on the workers."""
        self._sent = []
        self._answered = _Answered((), self._answered.taken)

    def state_dict(self) -> dict[str, Any]:
        """Return where the groups are."""
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
        """Go on from where groups were."""
        version, numbers, rows = _checked(state, len(self._groups))
        for group, sent in list(self._sent):
            self._placement.pool.wait([sent], 1)
            try:
                self._receive_one(group, sent)
            except Exception:  # its segments are not needed any more
                pass
        if self._keep:
            self._engine.discard()
        self._placement.take_out([group for group in self._groups if group.host is not None])
        self._answered = _Answered((), numbers)
        for group, number, (restarts, saved) in zip(self._groups, numbers, rows, strict=True):
            group.restarts, group.anew = restarts, None
            if saved is None and number:
                group.restart(number)
            group.state = None if saved is None else (number, saved)
        self.weights = Weights(version, self.weights.data)
        for host in self._placement.hosts:
            host.version = -1
        self._placement.make_unplaced(self._make)
        for group in self._groups:
            group.state, group.may_move = None, False
        self._placement.forget_settled()


def _checked(state: dict[str, Any], groups: int) -> tuple[int, tuple[int, ...], list[Any]]:
    """Return the version of the weights, the numbers of the next segments, and the restarts and states of groups.

    Raises:
        arrayferry.OptionError: `state_dict` did not return that.
    """
    try:
        version = operator.index(state["version"])
        numbers = tuple(map(operator.index, state["numbers"]))
        restarts = [*map(operator.index, state["restarts"])]
        rows = [*zip(restarts, state["states"], strict=True)]
        right = len(numbers) == len(rows) == groups and min(version, *numbers, *restarts) >= 0
        right = right and all(
            saved is None or saved["number"] == number
            for number, (_, saved) in zip(numbers, rows, strict=True)
        )
    except (KeyError, IndexError, TypeError, ValueError):
        right, version, numbers, rows = False, 0, (), []
    if not right:
        raise af.OptionError(
            f"{state!r:.80} is no state of a collector", remedy="Pass a result of state_dict()."
        )
    return version, numbers, rows


def pickled_weights(params: Any) -> bytes:
    """Pickle the parameters of a policy as they are now.

    Raises:
        arrayferry.OptionError: they cannot be pickled.
    """

    def plain(x: Any) -> Any:
        backend = af.backend_of(x)
        if backend.name == "torch":
            return x.detach().cpu()
        return x if backend.name in ("numpy", "jax") else backend.to_numpy(x)

    arrays, layout = af.flatten(params)
    try:
        return to_bytes(layout.unflatten([plain(x) for x in arrays]))
    except Exception as error:
        raise af.OptionError(
            f"the parameters of the policy cannot be pickled ({type(error).__name__}: {error})",
            remedy="Pass arrays and numbers.",
        ) from error
