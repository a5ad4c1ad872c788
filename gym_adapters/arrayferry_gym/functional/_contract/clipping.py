"""Actions clipped to their space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry_gym._actions.fitter import range_of
from arrayferry_gym._arrays import held_dtype, namespace
from arrayferry_gym._spaces.trees import branches, build, leaves, split


def clipper(space: Any, backend: af.Backend, device: Any) -> Callable[[Any], Any]:
    """Return a function that clips actions to a space. Its results are new arrays, unlike its argument.

    Args:
        space: the space of one environment.
        backend: the library of the actions.
        device: their device.
    """
    if branches(space) is not None:
        clips = [clipper(leaf, backend, device) for leaf, _ in leaves(space)]

        def clip_parts(action: Any) -> Any:
            parts = zip(clips, split(space, action), strict=True)
            return build(space, (clip(part) for clip, part in parts))

        return clip_parts
    dtype = held_dtype(space.dtype, backend)
    low, high = lowest_and_highest(space, dtype)
    if low.dtype.kind == "f" and np.all(np.isinf(low)) and np.all(np.isinf(high)):
        return lambda x: x + 0
    if backend.name == "numpy":
        maximum, minimum = np.maximum, np.minimum  # several times as fast as clip for few numbers
        return lambda x: minimum(maximum(x, low), high)
    if low.ndim:
        low, high = (backend.from_numpy(edge, device) for edge in (low, high))
    elif backend.name != "jax":
        low, high = low.item(), high.item()
    xp = namespace(backend)
    return lambda x: xp.clip(x, low, high)


def bounds_of(space: Any) -> tuple[Any, Any]:
    """Return the lowest and highest numbers of a space."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    low, count = range_of(space)
    return low, low + count - 1


def lowest_and_highest(space: Any, dtype: Any) -> tuple[Any, Any]:
    """Return these numbers as NumPy arrays of a dtype, 0-d if all are the same."""
    edges = []
    for edge in map(np.asarray, bounds_of(space)):
        if np.all(edge == edge.flat[0]):
            edge = edge.flat[0]
        limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
        if limits is not None:
            edge = np.clip(np.asarray(edge, object), limits.min, limits.max)
        edges.append(np.asarray(edge, dtype))
    low, high = np.broadcast_arrays(*edges)
    return low.copy(), high.copy()
