"""Quick ways for actions: what an adapter does from the second action of a type on.

A way takes an action and returns it as the environment expects it, or None, or raises, if it is not one
that it knows to be right. Then the action is fitted completely, which explains what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af

from ._actions import Fitter, range_test
from ._libraries import Libraries

__all__ = ["Way", "find_ways"]

Way = Callable[[Any], Any]


def find_ways(
    action: Any, fitted: Any, space: Space[Any], fitter: Fitter, libraries: Libraries
) -> dict[type, Way]:
    """Find the quick ways, by the type of action, after one action was fitted.

    Args:
        action: the action as the agent passed it.
        fitted: the same, as the environment expects it.
        space: the action space.
        fitter: what fitted it.
        libraries: converts to the library of the environment.
    """
    cls = type(action)
    if isinstance(space, spaces.Discrete) and libraries.env_backend.name == "numpy":
        return {} if fitter.asks(space) else _ways_of_numbers(action, space)
    if not _has_item(action) or not hasattr(fitted, "dtype"):
        return {}
    dtype, shape = fitted.dtype, fitted.shape
    test = _test(action, space, fitter, libraries)

    def way(given: Any) -> Any:
        converted = libraries.env(given)
        # most libraries have one object for each dtype, and comparing those takes longer
        same = converted.dtype is dtype or converted.dtype == dtype
        return converted if same and converted.shape == shape else None

    if test is None:
        return {cls: way}

    def tested(given: Any) -> Any:
        converted = libraries.env(given)
        if converted.dtype == dtype and converted.shape == shape and test(given, converted):
            return converted
        return None

    return {cls: tested}


def _ways_of_numbers(action: Any, space: spaces.Discrete) -> dict[type, Way]:
    """Find the ways of numbers for a Discrete of an environment in NumPy."""
    number: Any = space.dtype.type
    valid = range(int(space.start), int(space.start) + int(space.n))

    def from_int(given: int) -> Any:
        return number(given) if given in valid else None

    def from_item(given: Any) -> Any:
        value = given.item()
        return number(value) if type(value) is int and value in valid else None

    ways: dict[type, Way] = {int: from_int}
    if isinstance(
        action, np.ndarray
    ):  # which may be of times or objects, whose items are numbers too
        dtype = action.dtype
        ways[np.ndarray] = lambda given: from_item(given) if given.dtype == dtype else None
    elif _has_item(action):
        ways[type(action)] = from_item
    return ways


def _test(
    action: Any, space: Space[Any], fitter: Fitter, libraries: Libraries
) -> Callable[[Any, Any], bool] | None:
    """Return a test of an action, as passed and as converted, beyond dtype and shape; None if there is no need."""

    def complete(_: Any, converted: Any) -> bool:
        return fitter.fit(converted, space) is converted

    if fitter.bounds:
        return complete
    if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return None
    if libraries.env_backend.name == "numpy" and isinstance(space, spaces.MultiDiscrete):
        return range_test(space, np.dtype(space.dtype)) or complete
    array, backend = af.first_array(action)
    if backend is None or backend.is_traced(array) or backend.device_of(array) != "cpu":
        return None  # it has no values, or reading them would wait for the GPU
    if isinstance(space, spaces.Discrete):
        valid = range(int(space.start), int(space.start) + int(space.n))
        return lambda given, _: given.item() in valid
    to_numpy = af.converter("numpy")
    dtype = to_numpy(action).dtype
    test = range_test(space, dtype)
    if test is None:
        return complete
    return lambda given, _: (x := to_numpy(given)).dtype == dtype and test(given, x)


def _has_item(action: Any) -> bool:
    """Tell whether `item()` of an action of this type returns its number, as its backend says."""
    _, backend = af.first_array(action)
    return backend is not None and backend.has_item(type(action))
