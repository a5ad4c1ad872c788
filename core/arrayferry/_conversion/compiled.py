"""`CompiledConversion`: the pairs of backends and the plans that a conversion has made from one catalog.

When the registry changes, the conversion drops it as a whole, so that nothing in it can outlive the change, even if
other threads still use it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from arrayferry._errors import ArrayFerryError, ConversionError, CopyRequiredError
from arrayferry._observers import observers
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._plugin.converter import Inline
from arrayferry._plugin.origin import Origin
from arrayferry._registry.catalog import Catalog
from arrayferry._route.narrowing import number_array
from arrayferry._tree.kind import Kind
from arrayferry._tree.tree import Tree

from .lazy import LazyPair
from .pair import Pair
from .plans import Plans
from .snippets import CodeSnippet, snippet_of


class CompiledConversion:
    """The pairs and plans that a conversion has made from one catalog.

    Args:
        catalog: finds routes.
        target: the backend of the results.
        options: the options of the conversion.

    Attributes:
        catalog, target, options: the arguments.
        kind_of: returns the kind of a value.
        plans: the plans for structures.
        run: converts a value. If there are observers, it notifies them.
    """

    def __init__(self, catalog: Catalog, target: Backend, options: Options) -> None:
        self.catalog = catalog
        self.target = target
        self.options = options
        self.kind_of: Callable[[Any], Kind] = catalog.kind
        self._pairs: dict[Origin, Pair] = {}
        self._computed: CompiledConversion | None = None
        self.plans: Plans = Plans(self)

    def use(self, convert: Callable[[Any], Any]) -> None:
        """Convert with a function from now on."""
        self._convert: Callable[[Any], Any] = convert
        self.notice_observers()

    def notice_observers(self) -> None:
        """Start showing conversions to observers if there are any, or stop if there are none."""
        while True:
            watched = bool(observers)
            self.run: Callable[[Any], Any] = self._watched if watched else self._convert
            if watched is bool(observers):  # no observer has just come or gone in another thread
                return

    def _watched(self, value: Any) -> Any:
        return self.convert_watched(self._convert, value)

    def convert_watched(self, convert: Callable[[Any], Any], value: Any) -> Any:
        """Convert a value with a function, and show the conversion to the observers."""
        for observer in observers:
            return observer.watch(self, convert, value)
        self.notice_observers()  # the observers are in the parent of this forked process
        return convert(value)

    def slow_path(self, value: Any) -> Any:
        """Convert a value without a plan, and count its structure."""
        __tracebackhide__ = True
        try:
            tree = Tree(value, self.kind_of, self.options)
            result = tree.build(self._convert_arrays(tree))
        except ArrayFerryError as error:
            # the frames of this package do not help the user, unlike those of the cause
            raise error.with_traceback(None) from error.__cause__
        self.plans.learn(value, tree)
        return result

    def _convert_arrays(self, tree: Tree) -> list[Any]:
        """Convert the arrays of a tree, those of one backend together."""
        arrays = list(tree.arrays)
        groups: dict[Origin, list[int]] = {}
        for index, kind in enumerate(tree.kinds):
            if kind.category in ("number", "scalar"):
                try:
                    arrays[index] = self._array_of(arrays[index])
                except ConversionError as error:
                    error.locate(path=tree.path_of(index), target=self.target.name)
                    raise
            origin = kind.origin or self.catalog.backend("numpy")  # of a Python number
            groups.setdefault(origin, []).append(index)
        pairs = {self.pair(origin): indices for origin, indices in groups.items()}
        lazy = [pair for pair in pairs if isinstance(pair, LazyPair)]
        for pair in lazy if len(lazy) > 1 else ():
            indices = pairs[pair]
            pair.check([arrays[i] for i in indices], functools.partial(_path_in, tree, indices))
        # lazy arrays come last, so that nothing is computed if another array cannot be converted
        for one in sorted(pairs, key=lambda pair: pair in lazy):
            indices = pairs[one]
            results = one.many(
                [arrays[i] for i in indices], functools.partial(_path_in, tree, indices)
            )
            for index, y in zip(indices, results, strict=True):
                arrays[index] = y
        return arrays

    def _convert_computed(self, value: Any, fresh: bool, path: str) -> Any:
        """Convert a computed lazy array into memory that nobody else holds.

        Args:
            value: the result of computing it.
            fresh: whether nobody else holds its memory. If not, the library that computed it may have kept it.
            path: its place in the tree.
        """
        compiled = self
        if not fresh:
            if self._computed is None:
                options = self.options._replace(copy=True)
                self._computed = CompiledConversion(self.catalog, self.target, options)
                self._computed._computed = self._computed
            compiled = self._computed
        try:
            tree = Tree(value, self.kind_of, self.options, whole=not path)
            return tree.build(compiled._convert_arrays(tree))
        except ConversionError as error:
            error.path = path + error.path
            raise

    def _array_of(self, number: Any) -> Any:
        """Make a NumPy array from a number. A NumPy scalar keeps its dtype, a Python number gets the default."""
        import numpy

        if isinstance(number, numpy.generic):
            return numpy.asarray(number)
        if self.options.copy is False:
            raise CopyRequiredError(
                f"a Python {type(number).__name__} has no memory that could be shared",
                remedy='Pass copy=None to allow a copy, or scalars="keep" to leave Python numbers unchanged.',
            )
        return number_array(number, self.target, self.options.narrowing)

    def pair(self, source: Origin) -> Pair:
        """Return the pair for arrays of one backend or source."""
        if source not in self._pairs:
            same = isinstance(source, Backend) and source.name == self.target.name
            sides = self.catalog, source, self.target, self.options, self.plans.forget
            if source.memory == "lazy" and not same:
                self._pairs[source] = LazyPair(*sides, convert_computed=self._convert_computed)
            else:
                self._pairs[source] = Pair(*sides)
        return self._pairs[source]

    def snippet_for(self, kind: Kind, cls: type, *, with_routes: bool) -> CodeSnippet:
        """Return the code that converts arrays of a kind and type.

        Args:
            kind: the kind of the arrays.
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
