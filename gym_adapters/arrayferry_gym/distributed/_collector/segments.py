"""`joined`: the segments of groups, put together along the axis of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import arrayferry as af
from arrayferry_gym.distributed._workers.trajectories import Trajectories


class Origin:
    """Where the steps of a group come from.

    Args:
        group: its number.
        num_envs: how many environments it has.
        version: that of the weights.
        restarted: whether it began anew with the segment.
    """

    def __init__(self, group: int, num_envs: int, version: int, restarted: bool) -> None:
        self.group = group
        self.num_envs = num_envs
        self.version = version
        self.restarted = restarted


def joined(parts: Sequence[tuple[Trajectories, Origin]], lazy: bool) -> Trajectories:
    """Put the steps of groups together.

    Args:
        parts: the steps and origins of groups, in their order.
        lazy: whether they are Dask arrays, which are not computed.

    Raises:
        arrayferry.OptionError: they cannot be put together.
    """
    trajectories = [_checked(part, origin) for part, origin in parts]
    infos = [part.info for part in trajectories]
    if infos[0] is not None and not _is_complete(infos):
        filled = _filled(infos, lazy)
        trajectories = [
            part._replace(info=info) for part, info in zip(trajectories, filled, strict=True)
        ]
    flat = [af.flatten(part) for part in trajectories]
    layout = flat[0][1]
    for (_, other), (_, origin) in zip(flat, parts, strict=True):
        if other != layout:
            raise af.OptionError(
                f"the policy returned another structure in group {origin.group} than in group {parts[0][1].group}",
                remedy="Return the same structure for all environments.",
            )
    join = _concatenate(lazy)
    try:
        arrays = [join(same) for same in zip(*(arrays for arrays, _ in flat), strict=True)]
    except ValueError as error:
        raise af.OptionError(
            f"what the groups returned cannot be put together: {error}",
            remedy="Return arrays of the same shape for all environments, or pass groups=1.",
        ) from error
    whole: Trajectories = layout.unflatten(arrays)

    def each(values: Any, dtype: Any) -> Any:
        return np.repeat(np.array(values, dtype), [origin.num_envs for _, origin in parts])

    return whole._replace(
        version=each([origin.version for _, origin in parts], np.int64),
        group=each([origin.group for _, origin in parts], np.int64),
        restarted=each([origin.restarted for _, origin in parts], np.bool_),
    )


def _concatenate(lazy: bool) -> Any:
    if lazy:
        import dask.array

        return lambda arrays: dask.array.concatenate(arrays, axis=1)
    return lambda arrays: arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)


def _checked(part: Trajectories, origin: Origin) -> Trajectories:
    """Check that all arrays have a row for each environment."""
    for name in ("action", "extras", "info"):
        for array in af.flatten(getattr(part, name))[0]:
            if array.shape[1:2] != (origin.num_envs,):
                raise af.OptionError(
                    f"{name} of the {origin.num_envs} environments of group {origin.group} has the shape {array.shape[1:]} in a step",
                    remedy="Return arrays whose first axis is that of the environments.",
                )
    return part


def _is_complete(infos: Sequence[Any]) -> bool:
    return all(value is not None for info in infos for value in info.values())


def _filled(infos: Sequence[Any], lazy: bool) -> list[Any]:
    """Return the infos of groups, with zeros where no environment of a group gave one."""
    if lazy:
        import dask.array

        zeros: Any = dask.array.zeros
    else:
        zeros = np.zeros
    filled = [dict(info) for info in infos]
    for name in infos[0]:
        given = [info[name] for info in infos if info[name] is not None]
        for info in filled:
            if info[name] is None:
                shape = info[f"_{name}"].shape + (given[0].shape[2:] if given else ())
                info[name] = zeros(shape, dtype=given[0].dtype if given else np.float64)
    return filled
