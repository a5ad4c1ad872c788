"""The quick way for actions: what an adapter knows after one action, so that the next is converted quickly.

An action for which the quick way is not known to be right is fitted completely, which explains what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np
from gymnasium import Space, spaces

import arrayferry as af
from arrayferry.adapting import observed_read, observers
from arrayferry_gym._actions.fitter import Fitter, range_of
from arrayferry_gym._options.libraries import Libraries

item = methodcaller("item")
"""Reads the number of an action."""


@dataclass(frozen=True, slots=True, eq=False)
class Quick:
    """The quick way for actions of one type. It is immutable, so threads can share it.

    Attributes:
        cls: the type; None if no action is quick.
        space: the action space.
        valid: for a Discrete in NumPy, the numbers that are valid. Then an action is `number(x.item())`.
        number: the type of the number.
        given: the dtype that the action must have, None for any.
        dtype: otherwise, the dtype that the converted action must have.
        shape: its shape.
        test: another condition, on the action as passed and as converted; None if there is none.
        wider: the dtype that the converted action is cast to, which holds all its numbers; None for none.
    """

    cls: type | None
    space: Space[Any] | None = None
    valid: range | None = None
    number: Any = None
    given: Any = None
    dtype: Any = None
    shape: Any = None
    test: Callable[[Any, Any], bool] | None = None
    wider: Any = None


NOT_QUICK = Quick(None)


def find_quick(
    action: Any,
    converted: Any,
    fitted: Any,
    fitter: Fitter,
    libraries: Libraries,
) -> Quick:
    """Find the quick way for actions like one that was fitted.

    Args:
        action: the action as the agent passed it.
        converted: the same in the library of the environment.
        fitted: the same, as the environment expects it.
        fitter: the fitter that did this.
        libraries: converts to the library of the environment.
    """
    if not fitter.regular or fitter.corrected or fitter.passed_on:
        return NOT_QUICK
    cls, space = type(action), fitter.space
    item = _has_item(action)
    if isinstance(space, spaces.Discrete) and libraries.env_backend.name == "numpy":
        if fitter.uses_contains(space) or not (item or cls is int):
            return NOT_QUICK
        valid = range(int(space.start), int(space.start) + int(space.n))
        # items of arrays of times and objects may be whole numbers too
        given = action.dtype if isinstance(action, np.ndarray) else None
        return Quick(cls, space, valid=valid, number=space.dtype.type, given=given)
    if not item or not hasattr(fitted, "dtype"):
        return NOT_QUICK
    dtype, wider = fitted.dtype, None
    if libraries.env_backend.name == "numpy" and converted.dtype != dtype:
        if fitter.strict or not _is_narrower(converted.dtype, dtype):
            return NOT_QUICK
        dtype, wider = converted.dtype, dtype
    test = _test(action, dtype, fitter, libraries)
    return Quick(cls, space, dtype=dtype, shape=fitted.shape, test=test, wider=wider)


def _is_narrower(dtype: np.dtype[Any], wide: np.dtype[Any]) -> bool:
    """Tell whether a dtype of the same kind holds all numbers of another one."""
    whole = dtype.kind in "iu" and wide.kind in "iu"
    return (whole or dtype.kind == wide.kind == "f") and np.can_cast(dtype, wide, "safe")


def _test(
    action: Any, dtype: Any, fitter: Fitter, libraries: Libraries
) -> Callable[[Any, Any], bool] | None:
    """Return a test of an action, as passed and as converted, beyond dtype and shape; None if none is needed."""

    def complete(_: Any, converted: Any) -> bool:
        return fitter.fit(converted) is converted

    if fitter.strict:
        return complete
    space = fitter.space
    several = (spaces.MultiDiscrete, spaces.MultiBinary)
    if not isinstance(space, (spaces.Discrete, *several)):
        return None
    if libraries.env_backend.name == "numpy" and isinstance(space, several):
        return range_test(space, dtype) or complete
    array, backend = af.first_array(action)
    if backend is None or backend.is_traced(array) or backend.device_of(array) != "cpu":
        return None  # it has no values, or reading them would synchronize with the GPU
    if isinstance(space, spaces.Discrete):
        valid = range(int(space.start), int(space.start) + int(space.n))
        return lambda given, _: (observed_read(item, given) if observers else given.item()) in valid
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


def range_test(
    space: spaces.MultiDiscrete | spaces.MultiBinary, dtype: np.dtype[Any]
) -> Callable[[Any, Any], bool] | None:
    """Return a quick test of NumPy arrays of one dtype of whole numbers, with the shape of the space.

    Its first argument, the action as it was passed, is not used. None if the range does not fit the dtype.
    The cheapest of several methods is used, since the test runs at every step.
    """
    if dtype.kind not in "iu":
        return None
    unsigned = np.dtype(f"u{dtype.itemsize}")
    start, nvec = range_of(space)
    limits, last = np.iinfo(dtype), start.astype(object) + nvec - 1
    if start.min() < limits.min or last.max() > limits.max:
        return None
    if nvec.max() > np.iinfo(unsigned).max:
        return None
    start, count = start.astype(dtype), nvec.astype(unsigned)
    less, shifted = np.less, bool(np.any(start))

    def compare(x: Any) -> bool:
        # read as unsigned numbers, those below the range are larger than the count
        x = x - start if shifted else x
        return 0 not in less(x.view(unsigned), count).tobytes()

    if np.log2(nvec).sum() <= np.log2(_FEW):
        known: set[bytes] = set()

        def remember(_: Any, x: Any) -> bool:
            content = x.tobytes()
            if content in known:
                return True
            valid = compare(x)
            if valid:
                known.add(content)
            return valid

        return remember
    first = int(nvec.flat[0])
    alike = not shifted and bool(np.all(nvec == first))
    if alike and first < 0xFF and dtype.itemsize > 1 and count.size <= _SHORT:
        table = np.zeros(first, bool)

        def look_up(_: Any, x: Any) -> bool:
            try:
                table[x]  # an error for those above the range, and for most below
            except IndexError:
                return False
            return 0xFF not in x.tobytes()  # a byte of every small negative number

        return look_up
    return lambda _, x: compare(x)


_FEW = 4_096
"""The maximum number of valid actions of a space, if they are to be remembered."""
_SHORT = 256
"""The maximum number of elements for which looking each up in a table is faster than comparing all."""
