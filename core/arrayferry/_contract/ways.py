"""Ways to convert arrays, and what each promises: whether a write to one side is seen on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from arrayferry._plugin.backend import Backend
from arrayferry._registry.registry import default_registry

from .arrays import ArrayTests, Given
from .base import convert
from .same import Values, same

__all__ = ["STATED", "Way", "WayTests"]

STATED = "stated"
"""In place of the option `copy`: the methods of the plugin, and what it states of them."""
_OWN_MEMORY = {
    "from_numpy": "Set from_numpy_shares to None or True, or copy in from_numpy().",
    "to_numpy": "Set to_numpy_shares to None or True, and return a read-only view if arrays never change, or copy in "
    "to_numpy().",
    "copy": "Return from copy(x) an array in memory of its own.",
}
"""What the author can change if a method shares memory that it should not."""
_NO_SHARING = "Set {}_shares to None or False."


class Way(NamedTuple):
    """A way to convert arrays.

    Attributes:
        what: the call, for messages.
        source: the backend whose arrays it takes.
        target: the backend whose arrays it returns.
        fix: what the author can change if memory is shared where it must not be, or the other way round.
        shares: whether it promises that the result shares memory, None for no promise.
        protects: whether memory that must not change is never shared, if there is no promise.
    """

    what: str
    source: Backend
    target: Backend
    fix: str
    shares: bool | None
    protects: bool = True

    def shares_with(self, backend: Backend, array: Any) -> bool | None:
        """Return whether a write to the other side must be seen in an array, or must not, None if it may."""
        given = backend is self.source and isinstance(array, np.ndarray)
        is_constant = backend.memory in ("immutable", "lazy") or (
            given and not array.flags.writeable
        )
        return False if self.shares is None and self.protects and is_constant else self.shares


class WayTests(ArrayTests):
    """Checks ways to convert arrays from and to the backend under test."""

    def _ways(self, copy: bool | str | None) -> Iterator[tuple[Way, Callable[[Any], Any]]]:
        """Yield conversions from NumPy, to NumPy and within the library with an option `copy`, or `STATED`."""
        mine, numpy = self._backend, default_registry().backend("numpy")
        ends = [("from_numpy", numpy, mine), ("to_numpy", mine, numpy), ("copy", mine, mine)]
        for method, source, target in ends if copy is True else ends[:2]:
            if copy == STATED:
                shares = getattr(mine, f"{method}_shares")
                found = "copies" if shares else "shares"
                fix = f"{method}_shares is {shares}, but it {found}: set it to None or {not shares}"
                way = Way(f"{method}()", source, target, fix, shares, protects=False)
                yield way, lambda x, method=method: self._ask(method, x)
            else:
                fix = _OWN_MEMORY[method] if copy is not False else _NO_SHARING.format(method)
                what = f"copy={copy} from {source.name} to {target.name}"
                way = Way(what, source, target, fix, None if copy is None else not copy)
                yield way, lambda x, target=target: convert(x, target, copy=copy)

    def _check_writes(self, way: Way, given: Given, y: Any) -> Given:
        """Write to each side and look at the other. Return the array with its new values."""
        copies = way.shares is False and isinstance(y, np.ndarray)
        assert not copies or y.flags.writeable, (
            f"{way.what}, {given.case}, returned a read-only array instead of a writable copy. {way.fix}"
        )
        source, result = (way.source, given.x), (way.target, y)
        what = f"{way.what}, {given.case}: the {{}} was written to, and the {{}}"
        written = self._write(way, source, result, given.values, what.format("source", "result"))
        if not way.shares:
            self._write(way, result, source, written, what.format("result", "source"))
        return given._replace(values=written)

    def _write(self, way: Way, to: Any, other: Any, values: Values, what: str) -> Values:
        """Write to one side and look at the other, where something is promised. Return the new values of the former."""
        shares, number = way.shares_with(*other), float(np.real(values.flat[0])) - 1
        in_use = shares and _share_memory(to, other)
        if shares is None or not self._fill(*to, number):
            return values
        filled = np.broadcast_to(np.asarray(number, values.dtype), values.shape)
        if not shares:
            expected, told = values, "changed"
        elif not in_use or _share_memory(to, other):
            expected, told = filled, "did not change"
        else:  # the library has moved the array, since its memory was in use elsewhere
            return filled
        some = slice(None, None, 1 + values.size // 2**12)
        actual = self._values_of(*other)
        same(actual.flat[some], expected.flat[some], f"{what} {told}", way.fix)
        return filled

    def _values_of(self, backend: Backend, array: Any) -> Values:
        if backend.name == self._backend.name:
            return self.read(array)
        return np.array(backend.to_numpy(array))

    def _fill(self, backend: Backend, array: Any, value: float) -> bool:
        """Write a value into every element of an array of any backend. Tell whether it can be done."""
        if backend.memory != "writable":
            return False
        if isinstance(array, np.ndarray):
            if array.flags.writeable:
                array[...] = value
            return bool(array.flags.writeable)
        if backend.name == self._backend.name:
            self.write(array, value)
            return True
        numpy = default_registry().backend("numpy")
        return bool(backend.to_numpy_shares) and self._fill(numpy, backend.to_numpy(array), value)


def _share_memory(*sides: tuple[Backend, Any]) -> bool:
    return np.shares_memory(*(backend.to_numpy(array) for backend, array in sides))
