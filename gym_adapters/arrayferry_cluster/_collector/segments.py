"""`joined`: concatenates the segments of groups along the axis of environments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import arrayferry as af
from arrayferry_cluster._dask.groups import Group
from arrayferry_cluster._trajectories import Trajectory
from arrayferry_cluster._workers.infos import check_common_dtype


def joined(groups: Sequence[Group]) -> Trajectory:
    """Concatenate the first ready segment of each group along the axis of environments.

    Raises:
        arrayferry.OptionError: the segments differ in structure or shapes, or in dtypes so that an integer is rounded.
    """
    for group in groups:
        _check(group)
    trajectories: Sequence[Trajectory] = [group.ready[0].reply.steps for group in groups]
    if trajectories[0].info is not None:
        trajectories = _filled(trajectories)
    flattened = [af.flatten(trajectory) for trajectory in trajectories]
    joined_arrays, layout = flattened[0]
    try:
        if any(other_layout != layout for _, other_layout in flattened):
            raise ValueError(
                f"their structures are {' and '.join(sorted({str(other_layout) for _, other_layout in flattened}))}"
            )
        if len(flattened) > 1:
            columns = [*zip(*(arrays for arrays, _ in flattened), strict=True)]
            for column in columns:
                check_common_dtype(column)
            joined_arrays = [np.concatenate(column, axis=1) for column in columns]
    except ValueError as error:
        raise af.OptionError(
            f"the results of the groups cannot be concatenated: {error}",
            remedy="Return the same structure, dtypes and shapes for all environments, or pass groups=1.",
        ) from error
    env_counts = [group.setup.num_envs for group in groups]
    joined_trajectory: Trajectory = layout.unflatten(joined_arrays)
    return joined_trajectory._replace(
        version=np.repeat([group.ready[0].reply.version for group in groups], env_counts),
        group=np.repeat([group.setup.index for group in groups], env_counts),
        restarted=np.repeat([group.ready[0].restarted for group in groups], env_counts),
    )


def _check(group: Group) -> None:
    """Check that the arrays of actions, extras and infos have a row for each environment."""
    num_envs, trajectory = group.setup.num_envs, group.ready[0].reply.steps
    for name in ("action", "extras", "info"):
        for array in af.flatten(getattr(trajectory, name))[0]:
            if array.shape[1:2] != (num_envs,):
                raise af.OptionError(
                    f"{name} of the {num_envs} environments of {group} has the shape {array.shape[1:]} in a step",
                    remedy="Return arrays whose first axis is the axis of environments.",
                )


def _filled(parts: Sequence[Trajectory]) -> list[Trajectory]:
    """Return trajectories in which arrays of zeros replace infos that no environment of a group provided."""
    infos = [dict(trajectory.info) for trajectory in parts]
    for name in infos[0]:
        arrays = [info[name] for info in infos if info[name] is not None]
        example = arrays[0] if arrays else np.zeros((0, 0))
        for info in infos:
            if info[name] is None:
                info[name] = np.zeros(info[f"_{name}"].shape + example.shape[2:], example.dtype)
    return [trajectory._replace(info=info) for trajectory, info in zip(parts, infos, strict=True)]
