"""Quick ways to fit actions. A quick way is for one type, dtype and shape, so that it checks only the values.

Other actions are fitted with all checks. An error of these checks explains what is wrong with the action.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import spaces

import arrayferry as af
from arrayferry._utilities.cache import Cache
from arrayferry.extending import (
    dtype_info,
    dtype_name,
    dtype_named,
    has_item,
    observed_read,
    observers,
)
from arrayferry.typing import AnyArray, AnyTree
from arrayferry_gym._arrays import cast_numbers
from arrayferry_gym._spaces.trees import ARRAYS

from .fitter import bounds_of

FEW = 4_096
"""The maximum number of valid actions that a quick way caches."""
Way = Callable[[Any], Any]
"""A function that converts actions of one type, dtype and shape. It returns None if an action needs all checks."""


class Quick(Cache[type, tuple[Way, Any, Any]]):
    """A dict from types of actions to quick ways. Threads may share the dict. Copies and pickles of it are empty."""

    def __init__(self) -> None:
        super().__init__(32)

    def learn(self, action: AnyTree, fitted: Any, way: Way | None) -> None:
        """Store a quick way for later actions of the type of `action`.

        Args:
            action: the action as the agent passed it.
            fitted: the action after all checks. A way that returns another dtype or shape for it is not stored.
            way: the quick way, or None to store nothing.
        """
        if way is None:
            return
        # only a Discrete has NumPy scalars, and its quick way needs no test of dtype and shape
        if isinstance(fitted, np.generic):
            self[type(action)] = way, None, None
            return
        try:
            quick_fitted = way(action)
            if quick_fitted.dtype == fitted.dtype and quick_fitted.shape == fitted.shape:
                self[type(action)] = way, fitted.dtype, fitted.shape
        except Exception:  # the way does not work for this action
            return

    def __reduce__(self) -> tuple[Any, ...]:
        return Quick, ()


class Judge:
    """The base class of adapters and environments, which fits actions.

    An action is fitted in a quick way if one is stored for its type, and otherwise with all checks. Subclasses call
    `_forget_ways` in their constructor, and `_act` with each action. They implement `_fit`, which may call
    `_quick.learn(action, fitted, way)` to store a quick way for later actions of the same type, dtype and shape.
    """

    _quick: Quick

    def _forget_ways(self) -> None:
        self._quick = Quick()

    def _act(self, action: AnyTree) -> Any:
        """Return an action as the environment expects it, fitted in a quick way if possible."""
        __tracebackhide__ = True
        way_entry = self._quick.get(type(action))
        if way_entry is not None:
            way, dtype, shape = way_entry
            try:
                fitted = way(action)
                if fitted is not None and (
                    dtype is None or (fitted.dtype == dtype and fitted.shape == shape)
                ):
                    return fitted
            except Exception:  # `_fit` below raises an error that explains the mistake
                pass
        return self._fit(action)

    def _fit(self, action: AnyTree) -> Any:
        """Fit an action with all checks. If possible, store a quick way for later actions."""
        raise NotImplementedError


def quick_way(
    action: AnyTree, fitted: Any, space: Any, convert: af.Conversion, *, any_library: bool = False
) -> Way | None:
    """Return a quick way for actions with the type, dtype and shape of `action`, or None if they need all checks.

    Args:
        action: the action as the agent passed it.
        fitted: the action as the environment expects it.
        space: the space that the action was fitted to.
        convert: the conversion to the library of the environment.
        any_library: whether the environment also accepts NumPy arrays, and converts them itself.
    """
    if isinstance(action, np.ndarray) and type(action) is not np.ndarray:
        return None  # arrays of a subclass may have masks, which a quick way would ignore
    in_numpy, is_box = convert.target.name == "numpy", isinstance(space, spaces.Box)
    array, backend = af.first_array(action)
    if in_numpy and isinstance(space, spaces.Discrete):
        cls = type(action)
        is_number = cls in (int, bool) or (backend is not None and has_item(backend, cls))
        return _one(space, action) if is_number else None
    if not hasattr(action, "dtype") or not isinstance(space, ARRAYS):
        return None
    # reading values from a GPU would block, and traced arrays have no values
    reads_values = in_numpy or (
        backend is not None and not backend.is_traced(array) and backend.device_of(array) == "cpu"
    )
    if not reads_values:
        act_dtype, env_xp = action.dtype, af.namespace_of(fitted)
        if is_box or convert(action).dtype == fitted.dtype:
            return convert
        return lambda x: env_xp.astype(convert(x), fitted.dtype) if x.dtype == act_dtype else None
    to_numpy = convert if in_numpy else af.converter("numpy", sparse="dense")
    dtype, is_in_range = to_numpy(action).dtype, None
    wanted_dtype: Any = fitted.dtype if in_numpy else dtype_named(dtype_name(fitted.dtype))
    same_library = not in_numpy and backend is convert.target
    if is_box and dtype == wanted_dtype and (same_library or not any_library):
        return convert
    if is_box and not in_numpy and dtype_info(dtype).kind != dtype_info(wanted_dtype).kind:
        return None  # the environment's library may lack the dtype of the action
    if not is_box:
        is_in_range = range_test(space, dtype)
        if is_in_range is None or range_test(space, wanted_dtype) is None:
            return None
    xp: Any = af.namespace_of(array) if same_library else None
    # a plain cast preserves the numbers if their range is tested, or if the new dtype is wider
    cast_is_safe = not is_box or _is_wider(wanted_dtype, dtype)

    def fit_several(actions: Any) -> Any:
        host = to_numpy(actions)
        if host.dtype != dtype or not (is_in_range is None or is_in_range(host)):
            return None
        if dtype != wanted_dtype:
            host = host.astype(wanted_dtype) if cast_is_safe else cast_numbers(host, wanted_dtype)
        if not same_library:
            return host if in_numpy or (any_library and not observers) else convert(host)
        actions = convert(actions)
        return actions if actions.dtype == fitted.dtype else xp.astype(actions, fitted.dtype)

    return fit_several


def _one(space: spaces.Discrete, action: AnyTree) -> Way:
    """Return a quick way for a Discrete in NumPy. It fits actions of the type of `action`, of any library."""
    low, high = map(int, bounds_of(space))
    scalar_type: Any = space.dtype.type
    cls = type(action)
    # another dtype needs all checks, since `item()` of a datetime64 may return an int
    dtype = action.dtype if cls is np.ndarray else None
    cached_scalars: dict[int, Any] = {}  # looking up a NumPy scalar is faster than creating it

    def fit_one(new_action: Any) -> Any:
        number = new_action
        if dtype is not None and new_action.dtype != dtype:
            return None
        if cls not in (int, bool):
            number = observed_read(item, new_action) if observers else new_action.item()
        if not isinstance(number, int):
            return None
        scalar = cached_scalars.get(number)
        if scalar is None and low <= number <= high:
            scalar = scalar_type(number)
            if len(cached_scalars) < FEW:
                cached_scalars[number] = scalar
        return scalar

    return fit_one


item = methodcaller("item")
"""Calls the method `item` of a 0-d array, which returns a Python number."""


def _is_wider(wide: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Tell whether both dtypes are integer or both are float, and `wide` represents all numbers of `dtype`."""
    both_integers = dtype.kind in "iu" and wide.kind in "iu"
    return (both_integers or dtype.kind == wide.kind == "f") and np.can_cast(dtype, wide, "safe")


def range_test(space: Any, dtype: np.dtype[Any]) -> Callable[[Any], bool] | None:
    """Return a quick function that tells whether a MultiDiscrete or MultiBinary contains a NumPy array.

    The array must have this dtype and the shape of the space. Return None if the dtype is neither an integer dtype nor
    bool, or if it cannot represent all integers of the space.
    """
    if dtype.kind == "b":
        uint8_test = range_test(space, np.dtype(np.uint8))
        return uint8_test and (lambda x: uint8_test(x.view(np.uint8)))
    low, high = bounds_of(space)
    if dtype.kind not in "iu" or not dtype.isnative:
        return None
    limits, count = np.iinfo(dtype), high - low + 1
    uint_dtype = np.dtype(f"u{dtype.itemsize}")
    if low.min() < limits.min or high.max() > limits.max or count.max() > np.iinfo(uint_dtype).max:
        return None
    has_few_values = np.log2(count.astype(float)).sum() <= np.log2(FEW)
    start, count, needs_shift = low.astype(dtype), count.astype(uint_dtype), bool(np.any(low))
    seen: set[bytes] = set()

    def test(x: AnyArray) -> bool:
        content = x.tobytes()
        if content in seen:
            return True
        # numbers below `start` become negative, and then, as unsigned integers, larger than `count`
        shifted_x = x - start if needs_shift else x
        valid = 0 not in np.less(shifted_x.view(uint_dtype), count).tobytes()
        if valid and has_few_values:
            seen.add(content)
        return valid

    return test
