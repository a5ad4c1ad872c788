"""`Cache`: a dict of limited size."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Cache"]

K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V]):
    """A dict that is cleared when an entry is added while it is full.

    Args:
        limit: the maximum number of entries.

    Examples:
        >>> from arrayferry.adapting import Cache
        >>> cache = Cache(2)
        >>> for number in (1, 2, 3):
        ...     cache[number] = number**2
        >>> cache
        {3: 9}
    """

    __slots__ = ("limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit: int = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            self.clear()
        super().__setitem__(key, value)
