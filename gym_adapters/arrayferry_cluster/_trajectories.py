"""The results of a collector: `Trajectory`, and `CollectorStats`."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from arrayferry_gym.typing import ArrT


class CollectorStats(NamedTuple):
    """The progress of a collector.

    Attributes:
        steps: the number of environment steps returned so far.
        segments: the number of segments returned so far, in all groups.
        seconds: the time since the first segment was requested.
        lost: the number of times that a group of ordinary environments lost its worker.
    """

    steps: int
    segments: int
    seconds: float
    lost: int


class Trajectory(NamedTuple, Generic[ArrT]):
    """Environment steps, as trees of arrays (time, environment, ...), like the `Trajectory` of a rollout.

    `version`, `group` and `restarted` describe how the steps of each environment were collected.

    Attributes:
        observation: the observation that the policy received.
        action: the action that the policy chose, before it was adjusted to fit the action space.
        reward: the rewards. For ordinary environments, they are float64.
        terminated: whether the episode has terminated.
        truncated: whether the episode was truncated.
        final_observation: the observation after the step and before any reset. At the end of an episode, it shows the
            last state of that episode. None with `final_observation=False`.
        extras: the policy's other results, such as log-probabilities and values.
        began: whether the step is the first of its episode, bool. At such a step, the policy received its initial
            state.
        episode_return: the sum of the rewards of the episode up to this step, included.
        episode_length: the number of steps of the episode up to this step, included, int32.
        info: a dict of the requested infos, as they were after the step and before any reset. For ordinary
            environments, the dict has for each info a mask, such as "_lives" for "lives": whether the environment
            provided the info.
        version: the version of the policy's weights, (environment,). It is 0 at first, and 1 after the first `update`.
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
