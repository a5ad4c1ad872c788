"""`joined`: the segments of groups, put together along the axis of environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array
import numpy as np

import arrayferry as af
from arrayferry_gym.distributed._workers.records import GroupRecord
from arrayferry_gym.distributed._workers.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class GroupSegment:
    """A segment of a group.

    Attributes:
        group: the group.
        version: the version of the weights.
        restarted: whether the group was restarted with it.
        steps: its steps, without what is the same for the whole group.
    """

    group: GroupRecord
    version: int
    restarted: bool
    steps: Trajectories


def joined(segments: Sequence[GroupSegment], lazy: bool) -> Trajectories:
    """Put the segments of groups together.

    Args:
        segments: the segments, in the order of their groups.
        lazy: whether their steps are Dask arrays, which are not computed.

    Raises:
        arrayferry.OptionError: they cannot be put together.
    """
    library: Any = dask.array if lazy else np
    for segment in segments:
        _check(segment)
    parts: Sequence[Trajectories] = [segment.steps for segment in segments]
    if parts[0].info is not None:
        parts = _filled(parts, library.zeros)
    flat = [af.flatten(part) for part in parts]
    steps, layout = flat[0]
    for segment, (_, other) in zip(segments, flat, strict=True):
        if other != layout:
            raise af.OptionError(
                f"the policy returned another structure in group {segment.group.index} than in group {segments[0].group.index}",
                remedy="Return the same structure for all environments.",
            )
    if len(flat) > 1:
        try:
            steps = [
                library.concatenate(same, axis=1)
                for same in zip(*(arrays for arrays, _ in flat), strict=True)
            ]
        except ValueError as error:
            raise af.OptionError(
                f"what the groups returned cannot be put together: {error}",
                remedy="Return arrays of the same shape for all environments, or pass groups=1.",
            ) from error
    counts = [segment.group.setup.num_envs for segment in segments]
    whole: Trajectories = layout.unflatten(steps)
    return whole._replace(
        version=np.repeat([segment.version for segment in segments], counts),
        group=np.repeat([segment.group.index for segment in segments], counts),
        restarted=np.repeat([segment.restarted for segment in segments], counts),
    )


def _check(segment: GroupSegment) -> None:
    """Check that all arrays have a row for each environment."""
    count = segment.group.setup.num_envs
    for name in ("action", "extras", "info"):
        for array in af.flatten(getattr(segment.steps, name))[0]:
            if array.shape[1:2] != (count,):
                raise af.OptionError(
                    f"{name} of the {count} environments of group {segment.group.index} has the shape {array.shape[1:]} in a step",
                    remedy="Return arrays whose first axis is that of the environments.",
                )


def _filled(parts: Sequence[Trajectories], zeros: Any) -> list[Trajectories]:
    """Fill the infos that no environment of a group gave with zeros."""
    infos = [dict(part.info) for part in parts]
    for name in infos[0]:
        given = [info[name] for info in infos if info[name] is not None]
        like = given[0] if given else np.zeros((0, 0))
        for info in infos:
            if info[name] is None:
                info[name] = zeros(info[f"_{name}"].shape + like.shape[2:], dtype=like.dtype)
    return [part._replace(info=info) for part, info in zip(parts, infos, strict=True)]
