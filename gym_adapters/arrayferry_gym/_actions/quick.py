"""The quick way for actions: if one of this type, dtype and shape was fitted before, only the numbers are checked.

All other actions are fitted completely, which also explains what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry._utilities.cache import Cache
from arrayferry.extending import has_item, observed_read, observers
from arrayferry_gym._spaces.trees import ARRAYS

from .fitter import range_of

FEW = 4_096
"""The maximum number of valid actions that are remembered."""
Way = Callable[[Any], Any]
"""Returns an action of a known form as the environment takes it, or None if its numbers may not fit."""


class Quick:
    """The quick ways for the types of actions that were fitted before. Threads may share it. Copies start empty."""

    def __init__(self) -> None:
        self._ways: Cache[type, tuple[Way, Any, Any]] = Cache(32)

    def fitted(self, action: Any) -> Any:
        """Return an action as the environment takes it, None if it has to be fitted completely."""
        known = self._ways.get(type(action))
        if known is None:
            return None
        way, dtype, shape = known
        try:
            fitted = way(action)
            if dtype is None or (fitted.dtype == dtype and fitted.shape == shape):
                return fitted
        except Exception:  # fitting it completely raises an error that explains it
            return None
        return None

    def learn(self, action: Any, fitted: Any, way: Way | None) -> None:
        """Remember a way for actions of this type, if its result has the dtype and shape of the complete fitting."""
        if way is None:
            return
        if isinstance(fitted, np.generic):  # of a Discrete, whose way makes such numbers
            self._ways[type(action)] = way, None, None
            return
        try:
            quick = way(action)
            if quick.dtype == fitted.dtype and quick.shape == fitted.shape:
                self._ways[type(action)] = way, fitted.dtype, fitted.shape
        except Exception:  # the way does not work for this action
            return

    def __reduce__(self) -> tuple[Any, ...]:
        return Quick, ()


def quick_way(action: Any, converted: Any, space: Any, convert: af.Conversion) -> Way | None:
    """Return the quick way for actions like one that was fitted, None if there is none.

    Args:
        action: the action as the agent passed it.
        converted: the action in the library of the environment.
        space: the space that it was fitted to.
        convert: converts to that library.
    """
    in_numpy, cls = convert.target.name == "numpy", type(action)
    array, backend = af.first_array(action)
    is_one = cls is int or (backend is not None and has_item(backend, cls))
    # reading values from a GPU would wait for it, and traced arrays have none
    reads = in_numpy or (
        backend is not None and not backend.is_traced(array) and backend.device_of(array) == "cpu"
    )
    if isinstance(space, spaces.Discrete) and reads:
        return _one(space, action, convert, in_numpy) if is_one else None
    if not hasattr(converted, "dtype") or not isinstance(space, ARRAYS):
        return None
    tested = reads and not isinstance(space, spaces.Box)
    cast = in_numpy and converted.dtype != space.dtype
    if not tested and not cast:
        return convert
    to_numpy = af.converter("numpy", sparse="dense")
    dtype = to_numpy(action).dtype
    test = range_test(space, dtype) if tested else None
    if test is None and (tested or not _is_wider(space.dtype, dtype)):
        return None

    def several(given: Any) -> Any:
        x = convert(given)
        host = x if in_numpy else to_numpy(given)
        if host.dtype != dtype or not (test is None or test(host)):
            return None
        return x.astype(space.dtype) if cast else x

    return several


def _one(space: spaces.Discrete, action: Any, convert: af.Conversion, in_numpy: bool) -> Way:
    """Return the way for actions of a Discrete, whose number is read by `item()`."""
    valid = range(int(space.start), int(space.start) + int(space.n))
    kind: Any = space.dtype.type
    cls = type(action)
    dtype = action.dtype if cls is np.ndarray else None  # else times could pass as numbers
    numbers: dict[int, Any] = {}  # NumPy numbers, since looking one up is faster than making it

    def one(given: Any) -> Any:
        number = given
        if dtype is not None and given.dtype != dtype:
            return None
        if cls is not int:
            number = observed_read(item, given) if observers else given.item()
        if type(number) is not int:
            return None
        made = numbers.get(number)
        if made is None and number in valid:
            if not in_numpy:
                return convert(given)
            made = kind(number)
            if len(numbers) < FEW:
                numbers[number] = made
        return made

    return one


item = methodcaller("item")
"""Reads the number of an action."""


def _is_wider(wide: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether a dtype has all numbers of another one of the same kind."""
    whole = dtype.kind in "iu" and wide.kind in "iu"
    return (whole or dtype.kind == wide.kind == "f") and np.can_cast(dtype, wide, "safe")


def range_test(space: Any, dtype: np.dtype[Any]) -> Callable[[Any], bool] | None:
    """Return a quick test whether a NumPy array of a dtype is in a MultiDiscrete or MultiBinary of its shape.

    Return None if the dtype has no integers, or not all integers of the space.
    """
    start, count = range_of(space)
    if dtype.kind not in "iu" or not dtype.isnative:
        return None
    limits, last = np.iinfo(dtype), start.astype(object) + count - 1
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if start.min() < limits.min or last.max() > limits.max or count.max() > np.iinfo(unsigned).max:
        return None
    few = np.log2(count.astype(float)).sum() <= np.log2(FEW)
    start, count, shifted = start.astype(dtype), count.astype(unsigned), bool(np.any(start))
    known: set[bytes] = set()

    def test(x: Any) -> bool:
        content = x.tobytes()
        if content in known:
            return True
        # as unsigned integers, numbers below the range become larger than the count
        shift = x - start if shifted else x
        valid = 0 not in np.less(shift.view(unsigned), count).tobytes()
        if valid and few:
            known.add(content)
        return valid

    return test
