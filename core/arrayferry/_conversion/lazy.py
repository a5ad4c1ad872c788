"""`LazyPair`: checks all lazy arrays of one backend, then computes them in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from arrayferry._errors import ConversionError, UnsupportedDtypeError
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.call import call_backend, overrides, wrong_result
from arrayferry._plugin.origin import Origin
from arrayferry._registry.discovery import is_built_in
from arrayferry._utilities.cache import once

if TYPE_CHECKING:
    from arrayferry._route.execute import Way

from arrayferry._types import AnyArray, AnyTree

from .pair import Pair

_KEPT: Any = object()
"""A placeholder for the values of an array that is returned unchanged."""


class LazyPair(Pair):
    """Converts lazy arrays, which are computed or read from a file on demand.

    Args:
        arguments: the arguments of `Pair`.
        convert_computed: a function that converts the result of computing a lazy array if it is not a NumPy array. The
            arguments are the result, whether nothing else uses its memory, and the path of the lazy array in the tree.
    """

    def __init__(self, *arguments: Any, convert_computed: Callable[[Any, bool, str], Any]) -> None:
        super().__init__(*arguments)
        self._convert_computed = convert_computed

    @once
    def _computes(self) -> bool:
        return isinstance(self.source, Backend) and overrides(self.source, Backend.compute)

    def many(self, xs: list[Any], path_of: Callable[[int], str] = lambda index: "") -> list[Any]:
        """Convert lazy arrays. All arrays are checked first, then all are computed in one call."""
        import numpy

        results = list(xs)
        ways = self.check(xs, path_of)
        indices = [index for index, way in ways.items() if way is not None]
        # two lazy arrays may have one computed value: it is copied for the second, so that no two
        # results share memory
        seen_ids: set[int] = set()
        for index, computed in zip(indices, self._values(xs, indices, path_of), strict=True):
            x = xs[index]
            if computed is _KEPT:
                continue
            if (
                self._computes
                and not isinstance(computed, numpy.ndarray)
                and self.kind_of(computed).is_array
            ):
                is_fresh = id(computed) not in seen_ids and self._is_fresh(computed)
                seen_ids.add(id(computed))
                results[index] = self._convert_computed(computed, is_fresh, path_of(index))
            else:
                convert = functools.partial(self.by_route, values=computed, way=ways[index])
                results[index] = self.located(convert, x, index, path_of)
        for index, way in ways.items():
            if way is None:
                results[index] = self.located(self.one, xs[index], index, path_of)
        return results

    def check(self, xs: list[Any], path_of: Callable[[int], str]) -> dict[int, Way | None]:
        """Check lazy arrays before any is computed.

        Returns:
            A dict with an entry for each array, except those that are returned unchanged. The key is the index in `xs`.
            The value is the `Way` of an array that is computed together with others, and None for one that is converted
            alone.
        """
        ways: dict[int, Way | None] = {}
        for index, x in enumerate(xs):
            try:
                ways[index] = self.located(self._check, x, index, path_of)
            except UnsupportedDtypeError:
                if self.options.unsupported != "keep":
                    raise
        return ways

    def _check(self, x: AnyArray) -> Way | None:
        """Check a lazy array without computing it. Return its `Way`, or None if it is converted alone."""
        if self.is_sparse(x):
            return None
        way, reads_values = self.executor.check(x)
        return way if reads_values or self._computes else None

    def _is_fresh(self, value: AnyTree) -> bool:
        """Return whether a conversion may share the memory of `value`, a result of `compute`.

        This is safe if the plugin of the lazy arrays is built in, and arrays of the library of `value` are writable. A
        plugin that is not built in may still use this memory itself.
        """
        backend = self.kind_of(value).backend
        return is_built_in(self.source) and backend is not None and backend.memory == "writable"

    def _values(
        self, xs: list[Any], indices: list[int], path_of: Callable[[int], str]
    ) -> Sequence[Any]:
        """Return the values of `xs[i]` for each `i` in `indices`, computed in one call if possible.

        An array that occurs again is not computed again: the values are those of its first occurrence. NumPy arrays are
        copied.
        """
        if not indices:
            return []
        import numpy

        first_index: dict[int, int] = {}
        for index in indices:
            first_index.setdefault(id(xs[index]), index)
        index_groups = [list(first_index.values())]
        may_keep = self.options.unsupported == "keep"
        if may_keep and not self._computes and not overrides(self.source, Origin.to_numpy_many):
            # one call for each array, since one array that is refused makes a call for all fail
            index_groups = [[index] for index in index_groups[0]]
        computed = [value for group in index_groups for value in self._read(xs, group, path_of)]
        value_by_id = dict(zip(first_index, computed, strict=True))
        values = []
        for index in indices:
            value = value_by_id[id(xs[index])]
            if index != first_index[id(xs[index])] and isinstance(value, numpy.ndarray):
                value = numpy.array(value, subok=True)
            values.append(value)
        return values

    def _read(
        self, xs: list[Any], indices: list[int], path_of: Callable[[int], str]
    ) -> Sequence[Any]:
        """Compute the values of arrays in one call. For an array that is returned unchanged, the value is `_KEPT`."""
        method = "compute" if self._computes else "to_numpy_many"
        try:
            values: Sequence[Any] = call_backend(self.source, method, [xs[i] for i in indices])
        except ConversionError as refusal:
            if isinstance(refusal, UnsupportedDtypeError) and self.options.unsupported == "keep":
                if len(indices) == 1:
                    return [_KEPT]
                return [self._read(xs, [index], path_of)[0] for index in indices]
            paths = ", ".join(filter(None, map(path_of, indices[:4])))
            paths += " ..." if len(indices) > 4 else ""
            raise self.locate(refusal, paths) from refusal.__cause__
        count: Any = type(values).__name__
        if isinstance(values, Sequence):
            count = len(values) if self._computes else sum(array is not None for array in values)
        if count != len(indices) or len(values) != count:
            noun = "value" if self._computes else "NumPy array"
            actual, duty = f"{count} for {len(indices)} arrays", f"a list with one {noun} for each"
            error = wrong_result(self.source, method, actual, f"It must return {duty}.")
            raise self.locate(error, "")
        for value, index in zip(values, indices, strict=True):
            if isinstance(value, ConversionError):
                raise self.locate(value, path_of(index))
        return values
