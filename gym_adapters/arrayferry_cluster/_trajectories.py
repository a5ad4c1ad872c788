"""What a collector brings back: `Trajectory`, and how many."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from arrayferry_gym.typing import ArrT


class CollectorStats(NamedTuple):
    """What a collector has done so far.

    Attributes:
        steps: the number of environment steps that were returned.
        segments: the number of segments that were returned, from all groups.
        seconds: the time since the first segment was requested.
        lost: how often a group of ordinary environments lost its worker.
    """

    steps: int
    segments: int
    seconds: float
    lost: int


class Trajectory(NamedTuple, Generic[ArrT]):
    """Environment steps: trees of arrays (time, environment, ...), like `Trajectory` of a rollout, with their origin.

    Attributes:
        observation: the observation that the policy received.
        action: the action that it chose, before it was adjusted to fit the action space.
        reward: the rewards; float64 for ordinary environments.
        terminated: whether the episode has terminated.
        truncated: whether it was truncated.
        final_observation: the observation after the step, before any reset: the next state of the same episode, even
            at its end. None if it was left out.
        extras: the policy's other results, such as log-probabilities and values.
        began: whether the step is the first of its episode, bool. If so, the policy received its initial state
            there.
        episode_return: the sum of the rewards of the episode up to this step, which is its return at the end.
        episode_length: the number of its steps up to this one, int32.
        info: a dict of the requested infos, from after the step and before any reset. For ordinary environments, it
            has a second array for each, with "_" before the name: whether the environment provided it.
        version: which weights the policy used, (environment,): 0 for the first, 1 after the first `update`.
        group: the group of each environment, (environment,).
        restarted: whether the environments were restarted since the group's previous segment, because a worker was
            lost or an error occurred, bool (environment,).
    """

    observation: Any
    action: Any
    reward: ArrT
    terminated: ArrT
    truncated: ArrT
    final_observation: Any
    extras: Any
    began: ArrT
    episode_return: ArrT
    episode_length: ArrT
    info: Any
    version: ArrT
    group: ArrT
    restarted: ArrT
