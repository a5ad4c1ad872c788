"""`Trajectories`: the steps that a collector brings back."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Trajectories"]


class Trajectories(NamedTuple):
    """Steps of environments: trees of arrays (time, environment, ...), as `Transition` of a rollout, and where they come from.

    Attributes:
        observation: what the policy saw.
        action: what it chose, before it was mended to fit the action space.
        reward: the rewards; float64 for ordinary environments.
        terminated: whether the episode has terminated.
        truncated: whether it was truncated.
        final_observation: the observation after the step, before any reset: that of the next state of this
            episode, also at its end. None if it was left out.
        extras: what else the policy returned, such as log-probabilities and values.
        began: whether the step is the first of its episode, bool. There a policy got the first rows of its state.
        episode_return: the sum of the rewards of the episode up to this step, which is its return where it ends.
        episode_length: the number of its steps up to this one, int32.
        info: a dict of the infos that were asked for, those after the step and before any reset. Of ordinary environments, it
            has a second array for each, with "_" before the name: whether the environment gave it.
        version: which weights the policy used, (environment,): 0 for the first, 1 after the first `update`.
        group: the group of each environment, (environment,).
        restarted: whether the environments began anew since the segment of the group that was returned before, since a worker
            was lost or there was an error, bool (environment,).
    """

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    final_observation: Any
    extras: Any
    began: Any
    episode_return: Any
    episode_length: Any
    info: Any
    version: Any
    group: Any
    restarted: Any
