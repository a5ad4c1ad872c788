"""`GroupRunner`: segments of groups on workers, whatever happens to the workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import arrayferry as af

from ._engine import Engine
from ._messages import Collect, GroupSetup, MakeGroup, Save, Segment, to_bytes
from ._placement import Placement
from ._pool import Sent
from ._records import GroupRecord
from ._segments import Origin
from ._stats import Counts
from ._trajectories import Trajectories

__all__ = ["AHEAD", "GroupRunner", "Weights", "pickled_weights"]

AHEAD = 2
"""Segments of a group that may be under way or not yet returned."""


class Weights(NamedTuple):
    """The parameters of the policy, pickled, and their version."""

    version: int
    data: bytes


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

    def make_all(self) -> list[Any]:
        """Make all groups for the first time, and return the descriptions of all environments."""
        made = self._placement.make_all(lambda group: self._make(group, describe=True))
        return [description for descriptions in made for description in descriptions]

    def _make(self, group: GroupRecord, describe: bool = False) -> MakeGroup:
        setup = GroupSetup(
            group.index, group.first, group.num_envs, group.factories, self._plan,
            group.policy_state, group.restarts, group.state,
        )  # fmt: skip
        return MakeGroup(setup, describe)

    def take_all(self) -> list[tuple[Trajectories, Origin]]:
        """Return the next segments of all groups."""
        self._ask(1)
        while any(not group.ready for group in self._groups):
            self._receive()
            self._ask(1)
        return [self._take(group) for group in self._groups]

    def take_first(self) -> list[tuple[Trajectories, Origin]]:
        """Return the segment that is ready first."""
        self._ask(AHEAD)
        while not (ready := [group for group in self._groups if group.ready]):
            self._receive()
            self._ask(AHEAD)
        taken = [self._take(min(ready, key=lambda group: group.ready[0][2]))]
        self._ask(AHEAD)
        return taken

    def _take(self, group: GroupRecord) -> tuple[Trajectories, Origin]:
        trajectories, origin, _ = group.ready.popleft()
        group.taken += 1
        return trajectories, origin

    def _ask(self, most: int) -> None:
        """Ask for segments, and make groups that were lost.

        Args:
            most: how many segments of a group may be under way or not yet returned.
        """
        placement = self._placement
        moving = self._moving()
        if placement.unplaced:
            self._make_unplaced()
        begun: list[Sent] = []
        for group in self._groups:
            while group not in moving and len(group.sent) + len(group.ready) < most:
                host = group.host
                assert host is not None
                version, data = self.weights
                request = Collect(
                    group.index, group.number, group.restarts, group.taken, version,
                    None if host.version == version else data, self._keep,
                )  # fmt: skip
                sent = placement.pool.send({host: request})
                host.version = version
                group.sent += sent
                group.number += 1
                begun += sent
        if begun:
            placement.pool.start(begun)

    def _make_unplaced(self) -> None:
        """Make the groups again that no host has."""
        for group in self._placement.unplaced:
            while group.sent:  # some may have been answered before the worker was lost
                self._receive_one(group, group.sent[0])
            if group.state is None:
                self.counts.lost += group.lost
                group.restart()
        self._placement.make_unplaced(self._make)
        for group in self._groups:
            group.state = None
        self._placement.forget_settled()

    def _moving(self) -> set[GroupRecord]:
        """Let groups that were made again move to other workers, and return those that wait for their segments."""
        placement = self._placement
        if not placement.may_move:
            return set()
        placement.look_for_workers()
        moving = set(placement.should_move(placement.may_move))
        for group in [group for group in moving if not group.sent]:
            group.state = self._state(group, group.number)
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
        pairs = [(group, sent) for group in self._groups for sent in group.sent]
        if not pairs:
            return
        answered = self._placement.pool.wait([sent for _, sent in pairs], 1)
        failed: Exception | None = None
        for (group, sent), over in zip(pairs, answered, strict=True):
            if over and group.sent and group.sent[0] is sent:
                try:
                    self._receive_one(group, sent)
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _receive_one(self, group: GroupRecord, sent: Sent) -> None:
        """Take the answer to the first request for a segment of a group."""
        request: Any = sent.request
        try:
            replies = self._placement.pool.receive([sent])
        except Exception:
            group.sent.popleft()
            sent.host.version = -1  # what it has is not known
            if request.restarts == group.restarts:
                group.restart()
            raise
        group.sent.popleft()  # not before, as Ctrl-C may come while it is received
        segment: Segment | None = next(iter(replies.values()), None)
        if segment is None or request.restarts != group.restarts:
            return
        if self._keep and sent.host not in self._placement.hosts:  # its arrays are gone with it
            return
        arrays = segment.arrays
        if self._keep:
            (arrays,) = self._engine.assemble([arrays])
        trajectories = segment.layout.unflatten(list(arrays))
        restarted = request.number == group.anew
        origin = Origin(group.index, group.num_envs, request.version, restarted)
        steps = trajectories.began.shape[0] * group.num_envs
        self.counts.add(sent.host.worker, steps, segment.seconds, request.version)
        group.ready.append((trajectories, origin, self.counts.segments))

    def forget(self) -> None:
        """Forget what was not returned, so that nothing of it stays on the workers."""
        for group in self._groups:
            group.sent.clear()
            group.ready.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return where the groups are."""
        if self._placement.unplaced:
            self._make_unplaced()
        return {
            "version": self.weights.version,
            "numbers": [group.taken for group in self._groups],
            "restarts": [group.restarts for group in self._groups],
            "states": [self._state(group, group.taken) for group in self._groups],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where groups were."""
        for group in self._groups:
            while group.sent:
                self._placement.pool.wait([group.sent[0]], 1)
                try:
                    self._receive_one(group, group.sent[0])
                except Exception:  # its segments are not needed any more
                    pass
            group.ready.clear()
        if self._keep:
            self._engine.discard()
        self._placement.take_out([group for group in self._groups if group.host is not None])
        rows = zip(self._groups, state["numbers"], state["restarts"], state["states"], strict=True)
        for group, number, restarts, saved in rows:
            group.taken = group.number = number
            group.restarts, group.anew = restarts, None
            if saved is None and number:
                group.restart()
            group.state = saved
        self.weights = Weights(state["version"], self.weights.data)
        for host in self._placement.hosts:
            host.version = -1
        self._placement.make_unplaced(self._make)
        for group in self._groups:
            group.state, group.may_move = None, False
        self._placement.forget_settled()


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
