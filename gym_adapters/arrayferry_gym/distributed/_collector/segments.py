"""`joined`: the segments of groups, put together along the axis of environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.array
import numpy as np

import arrayferry as af
from arrayferry_gym.distributed._workers.trajectories import Trajectories


def joined(parts: Sequence[Trajectories], lazy: bool) -> Trajectories:
    """Put the segments of groups together.

    Args:
        parts: the segments, in the order of their groups.
        lazy: whether their steps are Dask arrays, which are not computed.

    Raises:
        arrayferry.OptionError: they cannot be put together.
    """
    library: Any = dask.array if lazy else np
    for part in parts:
        _check(part)
    if parts[0].info is not None:
        parts = _filled(parts, library.zeros)
    if len(parts) == 1:
        return parts[0]
    flat = [af.flatten(part[:-3]) for part in parts]  # without what has no axis of time
    layout = flat[0][1]
    for part, (_, other) in zip(parts, flat, strict=True):
        if other != layout:
            raise af.OptionError(
                f"the policy returned another structure in group {part.group[0]} than in group {parts[0].group[0]}",
                remedy="Return the same structure for all environments.",
            )
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
    others = map(np.concatenate, zip(*(part[-3:] for part in parts), strict=True))
    return Trajectories(*layout.unflatten(steps), *others)


def _check(part: Trajectories) -> None:
    """Check that all arrays have a row for each environment."""
    for name in ("action", "extras", "info"):
        for array in af.flatten(getattr(part, name))[0]:
            if array.shape[1:2] != part.group.shape:
                raise af.OptionError(
                    f"{name} of the {len(part.group)} environments of group {part.group[0]} has the shape {array.shape[1:]} in a step",
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
