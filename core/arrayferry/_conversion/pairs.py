"""`Pairs`: converts the arrays of trees to one target, all arrays of a library together.

A `Pairs` belongs to one catalog, the contents of a registry at one moment. When the registry changes, the conversion
drops its `Pairs` and its plans. Calls that are running in other threads use the old `Pairs` until they end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from arrayferry._errors import ConversionError, CopyRequiredError
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend, same_library
from arrayferry._plugin.converter import Inline
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._route.narrowing import number_array
from arrayferry._tree.kind import Kind
from arrayferry._tree.tree import Tree
from arrayferry._types import AnyTree
from arrayferry._utilities.cache import once

from .lazy import LazyPair
from .pair import Pair
from .snippets import CodeSnippet, snippet_of


class Pairs:
    """The pairs of a conversion: a `Pair` for each library whose arrays are converted to the target.

    Args:
        catalog: the backends and converters from which routes are built.
        target: the backend of the results.
        options: the options of the conversion.
        forget: a function without arguments. It is called when code that was generated for a pair becomes invalid.

    Attributes:
        catalog, target, options, forget: the arguments.
        kind_of: a function that returns the `Kind` of a value.
    """

    def __init__(
        self, catalog: Catalog, target: Backend, options: Options, forget: Callable[[], None]
    ) -> None:
        self.catalog = catalog
        self.target = target
        self.options = options
        self.forget = forget
        self.kind_of: Callable[[Any], Kind] = catalog.kind
        self._pairs: dict[Origin, Pair] = {}

    def convert_arrays(self, tree: Tree) -> list[Any]:
        """Convert the arrays of a tree, all arrays of a backend together."""
        arrays = list(tree.arrays)
        origin_indices: dict[Origin, list[int]] = {}
        for index, kind in enumerate(tree.kinds):
            if kind.category in ("number", "scalar"):
                try:
                    arrays[index] = self._array_of(arrays[index])
                except ConversionError as error:
                    location = {"path": tree.path_of(index), "target": self.target.name}
                    raise error.locate(**location) from error.__cause__
            # Python numbers have no origin: they were converted to NumPy arrays above
            origin = kind.origin or self.catalog.backend("numpy")
            origin_indices.setdefault(origin, []).append(index)
        indices_by_pair = {self.pair(origin): indices for origin, indices in origin_indices.items()}
        lazy_pairs = [pair for pair in indices_by_pair if isinstance(pair, LazyPair)]
        for pair in lazy_pairs if len(lazy_pairs) > 1 else ():
            indices = indices_by_pair[pair]
            pair.check([arrays[i] for i in indices], functools.partial(_path_in, tree, indices))
        # lazy arrays come last, so that nothing is computed if another array cannot be converted
        for current_pair in sorted(indices_by_pair, key=lambda pair: pair in lazy_pairs):
            indices = indices_by_pair[current_pair]
            results = current_pair.many(
                [arrays[i] for i in indices], functools.partial(_path_in, tree, indices)
            )
            for index, y in zip(indices, results, strict=True):
                arrays[index] = y
        return arrays

    @once
    def _copying(self) -> Pairs:
        """A `Pairs` that differs from this one only in the option `copy=True`."""
        options = self.options._replace(copy=True)
        return Pairs(self.catalog, self.target, options, self.forget)

    def _convert_computed(self, value: AnyTree, fresh: bool, path: str) -> Any:
        """Convert the computed value of a lazy array. The result is in memory that nothing else uses.

        Args:
            value: the computed value.
            fresh: whether nothing else uses the memory of `value`. If False, `value` is copied, since the library that
                computed it may have stored it.
            path: the path of the lazy array in the tree.
        """
        pairs = self if fresh or self.options.copy else self._copying
        try:
            tree = Tree(value, self.kind_of, self.options, whole=not path)
            return tree.build(pairs.convert_arrays(tree))
        except ConversionError as error:
            error.path = path + error.path
            raise

    def _array_of(self, number: Any) -> Any:
        """Make a NumPy array from a number. A Python number gets the dtype that the target has by default."""
        import numpy

        is_numpy = isinstance(number, numpy.generic)
        if self.options.copy is False and not (is_numpy and self.target.name == "numpy"):
            raise CopyRequiredError(
                f"a {'NumPy' if is_numpy else 'Python'} {type(number).__name__} has no memory that could be shared",
                remedy='Pass copy=None to allow a copy. scalars="keep" leaves Python numbers unchanged.',
            )
        if is_numpy:
            return numpy.asarray(number)
        return number_array(number, self.target, self.options.narrowing)

    def is_lazy(self, source: Origin | None) -> bool:
        """Return whether converting arrays of `source` computes them. `pair(source)` must have been called before."""
        return source is not None and isinstance(self._pairs[source], LazyPair)

    def pair(self, source: Origin) -> Pair:
        """Return the pair for arrays of one backend or source."""
        if source not in self._pairs:
            arguments = self.catalog, source, self.target, self.options, self.forget
            if source.memory == "lazy" and not same_library(source, self.target):
                self._pairs[source] = LazyPair(*arguments, convert_computed=self._convert_computed)
            else:
                self._pairs[source] = Pair(*arguments)
        return self._pairs[source]

    def snippet_for(self, kind: Kind, cls: type, *, with_routes: bool) -> CodeSnippet:
        """Return the code that converts arrays of one `Kind` and one type.

        Args:
            kind: the `Kind` of the arrays.
            cls: their type.
            with_routes: whether the code also converts arrays that a direct converter does not handle.
        """
        if kind.category in ("number", "scalar"):
            return CodeSnippet(Inline("", "{convert}({x})", {"convert": self._convert_number}))
        assert kind.origin is not None
        return snippet_of(self.pair(kind.origin), cls, with_routes=with_routes)

    def _convert_number(self, number: Any) -> Any:
        return self.pair(self.catalog.backend("numpy")).one(self._array_of(number))


def _path_in(tree: Tree, indices: list[int], index: int) -> str:
    return tree.path_of(indices[index])
