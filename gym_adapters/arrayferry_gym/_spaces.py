"""Spaces that describe the converted arrays: they sample and contain arrays of the agent's library.

A converted space is an instance of the class of the original, and equal to it. It shares the
original's random generator, so that seeding either gives the same samples.
"""

from __future__ import annotations

import functools
import multiprocessing
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import create_empty_array, create_shared_memory, iterate

import arrayferry as af

from ._actions import Fitter
from ._libraries import Libraries
from ._space_trees import leaves, split

__all__ = ["converted_space"]


def converted_space(original: Space[Any], libraries: Libraries, *, observed: bool = True) -> Any:
    """Return a space that samples and contains arrays of the agent's library.

    Args:
        original: the environment's space, or a converted one.
        libraries: converts samples, once the agent's library is known.
        observed: whether it is a space of observations, not of actions.
    """
    if isinstance(original, Converted):
        original = original.original

    def converted(space: Space[Any]) -> Any:
        return converted_space(space, libraries, observed=observed)

    new: Any = object.__new__(_converted_class(type(original)))  # type: ignore[arg-type]
    new.__dict__.update(original.__dict__)
    new.original, new.libraries, new.observed = original, libraries, observed
    if isinstance(original, spaces.Dict):
        items = ((key, converted(space)) for key, space in original.spaces.items())
        new.spaces = type(original.spaces)(items)
    elif isinstance(original, (spaces.Tuple, spaces.OneOf)):
        new.spaces = tuple(map(converted, original.spaces))
    elif isinstance(original, spaces.Sequence):
        new.feature_space = converted(original.feature_space)
    return new


@functools.cache
def _converted_class(cls: type) -> type:
    new = type(cls.__name__, (Converted, cls), {"__module__": cls.__module__})
    for function in _BY_CLASS:
        if cls in function.registry:
            function.register(new, function.registry[cls])
    return new


_BY_CLASS: tuple[Any, ...] = (iterate,)
"""Gymnasium's single-dispatch functions that a converted class is registered with as its original is.

To inherit is not enough: for the parts of a Tuple, `iterate` looks for their very class.
"""


class Converted:
    """The methods in which a converted space differs from its original."""

    original: Any
    libraries: Libraries
    observed: bool

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Sample as the original does, as arrays of the agent's library. Masks may be such arrays."""
        args, kwargs = af.convert((args, kwargs), "numpy")
        return self.libraries.to_agent(self.original.sample(*args, **kwargs))

    def contains(self, x: Any) -> bool:
        """Tell whether a value is in the space, as arrays of any library."""
        try:
            parts = split(self.original, af.convert(x, "numpy"), _mismatch)
            pairs = zip(leaves(self.original), parts, strict=True)
            return all(_leaf_contains(space, part) for (space, _), part in pairs)
        except Exception:
            return False

    def seed(self, seed: Any = None) -> Any:
        """Seed the original."""
        return self.original.seed(seed)

    @property
    def np_random(self) -> Any:
        """The random generator of the original."""
        return self.original.np_random

    def to_jsonable(self, sample_n: Any) -> Any:
        """Do the same as the original, also for samples of the agent's library."""
        numpy = af.convert(list(sample_n), "numpy")
        return self.original.to_jsonable([Fitter().fit(x, self.original) for x in numpy])

    def from_jsonable(self, sample_n: Any) -> Any:
        """Return arrays of the agent's library for a result of `to_jsonable`."""
        return self.libraries.to_agent(self.original.from_jsonable(sample_n))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.original, self.libraries, self.observed)


def _mismatch(value: Any, path: str, needed: str) -> Exception:
    return TypeError(f"{needed} is needed{path}")


def _restored(original: Space[Any], libraries: Libraries, observed: bool) -> Any:
    return converted_space(original, libraries, observed=observed)


def _refuse_buffer(space: Any) -> None:
    """Refuse a NumPy buffer for observations that are no NumPy arrays."""
    target = space.libraries.target_backend
    if target is not None and target.name != "numpy" and space.observed:
        raise af.OptionError(
            f"a NumPy buffer was asked for observations that an adapter converts to {target.name}. "
            "Gymnasium's vector environments keep the observations of their environments in such buffers, "
            "and FrameStackObservation does",
            remedy="Put the adapter outside: wrap the vector environment with an adapter of "
            "arrayferry_gym.vector, or FrameStackObservation with this one.",
        )


def _empty_array(space: Any, n: int = 1, fn: Any = np.zeros) -> Any:
    _refuse_buffer(space)
    return create_empty_array(space.original, n, fn)


def _shared_memory(space: Any, n: int = 1, ctx: Any = multiprocessing) -> Any:
    _refuse_buffer(space)
    return create_shared_memory(space.original, n, ctx)


for _function, _ours in (
    (create_empty_array, _empty_array),
    (create_shared_memory, _shared_memory),
):
    _register: Any = _function.register
    _register(Converted, _ours)


def _leaf_contains(space: Space[Any], x: Any) -> bool:
    """Do the same as the original, with bounds of the dtype of `x`, to which JAX has narrowed the numbers."""
    if isinstance(space, spaces.Box):
        x = np.asarray(x)
        if x.dtype != space.dtype and x.dtype.kind == space.dtype.kind == "f":
            low, high = space.low.astype(x.dtype), space.high.astype(x.dtype)
            return bool(x.shape == space.shape and np.all(x >= low) and np.all(x <= high))
        return bool(space.contains(x))
    whole = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    if isinstance(space, whole) and isinstance(x, np.ndarray) and x.dtype.kind not in "iub":
        return False
    return bool(space.contains(Fitter().fit(x, space)))
