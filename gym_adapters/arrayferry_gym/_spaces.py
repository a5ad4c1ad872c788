"""Spaces that tell the truth about what an adapter passes: what they sample is the agent's.

A converted space is an instance of the class of the original, and equal to it. It shares the
original's random generator, so that seeding either gives the same samples.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

from ._actions import fit_numpy
from ._sides import Sides

__all__ = ["converted_space"]


def converted_space(original: Space[Any], sides: Sides) -> Any:
    """Give a space whose samples are arrays of the agent, and that holds the agent's arrays.

    Args:
        original: the environment's, or one converted before.
        sides: converts to what the agent speaks, when it is known.
    """
    if isinstance(original, Converted):
        original = original.original
    new: Any = object.__new__(_converted_class(type(original)))  # type: ignore[arg-type]
    new.__dict__.update(original.__dict__)
    new.original, new.sides = original, sides
    if isinstance(original, spaces.Dict):
        items = ((key, converted_space(space, sides)) for key, space in original.spaces.items())
        new.spaces = type(original.spaces)(items)
    elif isinstance(original, (spaces.Tuple, spaces.OneOf)):
        new.spaces = tuple(converted_space(space, sides) for space in original.spaces)
    elif isinstance(original, spaces.Sequence):
        new.feature_space = converted_space(original.feature_space, sides)
    return new


@functools.cache
def _converted_class(cls: type) -> type:
    return type(cls.__name__, (Converted, cls), {"__module__": cls.__module__})


class Converted:
    """What a converted space does otherwise than its original."""

    original: Any
    sides: Sides

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Sample as the original does, for the agent; masks may be the agent's arrays."""
        args, kwargs = af.convert((args, kwargs), "numpy")
        return self.sides.to_agent(self.original.sample(*args, **kwargs))

    def contains(self, x: Any) -> bool:
        """Tell whether a value is one of the space, in the agent's arrays or in any other."""
        try:
            return _contains(self.original, af.convert(x, "numpy"))
        except Exception:
            return False

    def seed(self, seed: Any = None) -> Any:
        """Seed the original."""
        return self.original.seed(seed)

    @property
    def np_random(self) -> Any:
        """The generator of the original."""
        return self.original.np_random

    def to_jsonable(self, sample_n: Any) -> Any:
        """Give samples as the original does, of the agent's arrays too."""
        numpy = af.convert(list(sample_n), "numpy")
        return self.original.to_jsonable([fit_numpy(x, self.original) for x in numpy])

    def from_jsonable(self, sample_n: Any) -> Any:
        """Give the agent's arrays for what `to_jsonable` gave."""
        return self.sides.to_agent(self.original.from_jsonable(sample_n))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return converted_space, (self.original, self.sides)


def _contains(space: Space[Any], x: Any) -> bool:
    """As the original would, but that bounds are narrowed with the numbers, as JAX narrows them."""
    if isinstance(space, spaces.Dict):
        return (
            isinstance(x, dict)
            and x.keys() == space.spaces.keys()
            and all(_contains(space.spaces[key], x[key]) for key in x)
        )
    if isinstance(space, spaces.Tuple):
        return (
            isinstance(x, (tuple, list))
            and len(x) == len(space.spaces)
            and all(map(_contains, space.spaces, x))
        )
    if isinstance(space, spaces.Box):
        x = np.asarray(x)
        if x.dtype != space.dtype and x.dtype.kind == space.dtype.kind == "f":
            low, high = space.low.astype(x.dtype), space.high.astype(x.dtype)
            return bool(x.shape == space.shape and np.all(x >= low) and np.all(x <= high))
        return bool(space.contains(x))
    whole = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if isinstance(space, whole) and isinstance(x, np.ndarray) and x.dtype.kind not in "iub":
        return False
    return bool(space.contains(fit_numpy(x, space)))
