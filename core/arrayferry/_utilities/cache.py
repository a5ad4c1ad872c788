"""`Cache` and `CostlyCache`: dicts of limited size. `once`: an attribute that is computed on first use.

All three can be used in several threads without a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K")
V = TypeVar("V")


class once(Generic[V]):  # noqa: N801
    """An attribute that is computed on first use, and is the same object for all threads.

    It has no lock. The lock of `functools.cached_property` in Python 3.11 could remain locked in a forked process.

    Args:
        make: a function that returns the value of the attribute for an object.

    Examples:
        >>> from arrayferry._utilities.cache import once
        >>> class Table:
        ...     @once
        ...     def rows(self):
        ...         return [1, 2, 3]
        >>> table = Table()
        >>> table.rows is table.rows
        True
    """

    def __init__(self, make: Callable[[Any], V]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> V:
        if instance is None:
            return self  # type: ignore[return-value]
        value: V = vars(instance).setdefault(self._make.__name__, self._make(instance))
        return value


def existing(values: WeakValueDictionary[Any, V]) -> list[V]:
    """Return those values of a weak dict that still exist. Other threads may add and drop values during the call."""
    return [value for reference in values.valuerefs() if (value := reference()) is not None]


PART = 8
"""A full `Cache` drops one of every `PART` entries."""


class Cache(dict[K, V]):
    """A dict of limited size. If it is full when an entry is added, it drops some of its entries.

    It does not drop all of them, so that most look-ups still succeed if slightly more entries are in use than fit.

    Args:
        limit: the maximum number of entries.

    Examples:
        >>> from arrayferry._utilities.cache import Cache
        >>> cache = Cache(2)
        >>> for number in (1, 2, 3):
        ...     cache[number] = number**2
        >>> cache
        {2: 4, 3: 9}
    """

    __slots__ = ("_times", "limit")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit: int = limit
        self._times = 0

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            # copy() is atomic, so no other thread can change the dict while its keys are listed
            keys = list(self.copy())
            for old_key in keys[self._times % min(PART, self.limit) :: PART]:
                self.pop(old_key, None)
            self._times += 1
        super().__setitem__(key, value)


class CostlyCache(dict[K, V]):
    """A dict of limited size for costly values. A value saves as much time as it costs only after about a hundred uses.

    A new value does not displace a value in use, which would soon have to be made again.

    Args:
        limit: the maximum number of entries.

    Attributes:
        used: the values that were used since values were last dropped. Code that uses a value must add it to this set.

    Examples:
        >>> from arrayferry._utilities.cache import CostlyCache
        >>> programs = CostlyCache(2)
        >>> for number in (1, 2, 3):
        ...     if programs.make_room(number) is not None:  # else do without it
        ...         programs[number] = f"program {number}"
        >>> programs
        {1: 'program 1', 2: 'program 2'}
    """

    __slots__ = ("_again", "_dropped", "_emptied", "_wait", "_waited", "limit", "used")

    WAIT, LONGEST = 32, 8_192
    """The minimum and the maximum number of calls of `make_room` on a full dict before unused values are dropped."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit: int = limit
        self.used: set[V] = set()
        self._dropped: Cache[K, None] = Cache(8 * limit)
        self._wait, self._waited = self.WAIT, 0
        self._emptied = self._again = False

    def make_room(self, key: K) -> list[V] | None:
        """Make room for one more entry. Call this before making the entry.

        Returns:
            A list of the values that were dropped. None if there is no room, and the entry must not be added.
        """
        dropped: list[V] = []
        if key in self._dropped:  # the key was dropped, but is needed again
            self._again = True
        if len(self) < self.limit:
            return dropped
        self._waited += 1
        if self._waited < self._wait:
            return None
        if self._emptied:
            longer_wait = min(2 * self._wait, self.LONGEST)
            self._wait = longer_wait if self._again else max(self._wait // 2, self.WAIT)
        idle_keys = [key for key, value in self.copy().items() if value not in self.used]
        for idle_key in idle_keys[: max(1, self.limit // 4)]:
            with suppress(KeyError):
                dropped.append(self.pop(idle_key))
                self._dropped[idle_key] = None
        self.used.clear()
        self._waited, self._emptied, self._again = 0, bool(dropped), False
        return dropped or None
