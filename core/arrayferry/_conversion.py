"""`Conversion`: a target with options, which learns the structures that it meets.

It takes a value apart, takes the arrays across in groups of one source each, and puts the value together
again; for a structure that it met before it has a plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, Self

from ._backend import Backend
from ._crossing import Crossing
from ._errors import ConversionError, NarrowingError
from ._options import Options
from ._plan import Plan, Ways, plain, structure_of, write_plan
from ._registry import Registry, default_registry
from ._route import describe_route
from ._tree import Tree

__all__ = ["Conversion", "Target", "make_conversion"]

Target = str | ModuleType | Backend

_MISSED: Any = object()
_MOST_PLANS = 8
_MOST_STRUCTURES = 1_000


def _missed(value: Any) -> Any:
    return _MISSED


class Conversion(functools.partial[Any]):
    """A conversion to one target, made once and called often. `converter` makes it.

    Call it with a value: an array, a tree of arrays, or anything. It can be pickled and shared among
    threads. The first times that it meets a structure it goes the careful way; then it writes a plan for
    it, see `explain`. It is a `functools.partial`, whose function is the plan that served last: so calling
    it costs no more than calling the plan.

    Attributes:
        target: the backend that arrays are converted to.
        options: the options that hold.
        registry: where sources are looked up.

    Raises:
        ConversionError: when called, if an array cannot be carried; the error says where it stands.
        StructureError: when called, if the tree is cyclic or too deep.
    """

    def __new__(cls, target: Backend, options: Options, registry: Registry) -> Self:
        """Make it with a function that is replaced before it can be called."""
        return super().__new__(cls, _missed)

    def __init__(self, target: Backend, options: Options, registry: Registry) -> None:
        self.target = target
        self.options = options
        self.registry = registry
        self._start()
        registry.watch(self)

    def _start(self) -> None:
        for plans in getattr(self, "_plans", {}).values():
            for plan in plans:
                plan.forget()
        self._crossings: dict[Any, Crossing] = {}
        self._plans: dict[type, list[Plan]] = {}
        self._sighted: dict[Any, int] = {}
        self._hits = 0
        self._call_first(self._miss)

    def _call_first(self, function: Callable[[Any], Any]) -> None:
        put = getattr(self, "__setstate__")  # noqa: B009 - not in the stubs
        put((function, (), {}, self.__dict__))

    def registry_changed(self) -> None:
        """Forget what was derived from the registry."""
        self.target = self.registry.backend(self.target)
        self._start()

    def _miss(self, value: Any) -> Any:
        """For a value that the plan that served last does not serve: another plan, or the careful way."""
        try:
            plans = self._plans.get(type(value), ())
        except Exception:  # a class that cannot be hashed
            plans = ()
        for plan in plans:
            result = plan.run(value, _missed)
            if result is not _MISSED:
                self._hits += 1
                if self._hits % 16 == 0:
                    self._call_first(plan.run)
                return result
        return self.careful(value)

    def careful(self, value: Any) -> Any:
        """Convert a value without a plan, as is done for structures that were not met before."""
        tree = Tree(value, self.registry, scalars=self.options.scalars == "convert")
        result = tree.build(self._across(tree))
        self._learn(tree, value)
        return result

    def _learn(self, tree: Tree, value: Any) -> None:
        """Write a plan for a structure that was met before."""
        structure = structure_of(tree)
        try:
            times = self._sighted.get(structure, 0)
        except Exception:  # as above
            return
        enough = 2 + len(tree.arrays) // 2_000  # to write a long plan takes tenths of a second
        if structure is None or times >= enough:
            return
        if len(self._sighted) >= _MOST_STRUCTURES:
            self._sighted.clear()
        self._sighted[structure] = times + 1
        if times + 1 < enough:
            return
        plan = write_plan(tree, self._ways, f"to {self.target.name}")
        if plan is None:
            return
        plan.run.__defaults__ = (self._miss,)
        plans = self._plans.setdefault(type(value), [])
        if len(plans) >= _MOST_PLANS:
            plans.pop().forget()
        plans.insert(0, plan)
        self._call_first(plan.run)

    def _ways(self, cls: type) -> Ways:
        kind, by = self.registry.catalog.kinds[cls]
        if kind in ("scalar", "number"):
            return Ways(plain(self._cross_scalar))
        return self.crossing(by[0] if kind == "objects" else by).ways(cls)

    def _cross_scalar(self, value: Any) -> Any:
        import numpy

        array = numpy.asarray(value)
        if array.dtype.kind == "O":
            return NotImplemented
        return self.crossing(self.registry.backend("numpy")).one(array)

    def explain(self) -> str:
        """Show the code of the plans that were written so far, as text."""
        plans = [plan.source for listed in self._plans.values() for plan in listed]
        return "\n\n".join(plans) or "no structure was met twice yet, so there is no plan"

    def __get__(self, instance: Any, owner: Any = None) -> Self:
        """Be no method where it stands in a class."""
        return self

    def _across(self, tree: Tree) -> list[Any]:
        arrays: list[Any] = list(tree.arrays)
        groups: dict[Any, list[int]] = {}
        hub = self.registry.backend("numpy") if None in tree.backends else None
        for index, owner in enumerate(tree.backends):
            if owner is None:
                arrays[index] = self._from_scalar(arrays[index], tree, index)
            groups.setdefault(owner or hub, []).append(index)
        results = arrays
        for backend, places in groups.items():
            crossing = self.crossing(backend)
            try:
                crossed = crossing.many([arrays[index] for index in places])
            except ConversionError:
                crossed = self._one_by_one(crossing, arrays, places, tree)
            for index, y in zip(places, crossed, strict=True):
                results[index] = y
        return results

    def _one_by_one(
        self, crossing: Crossing, arrays: list[Any], places: list[int], tree: Tree
    ) -> list[Any]:
        """Cross again array by array, to say which it is that cannot."""
        crossed = []
        for index in places:
            try:
                crossed.append(crossing.one(arrays[index]))
            except ConversionError as error:
                error.locate(path=tree.path_of(index))
                raise
        return crossed

    def _from_scalar(self, value: Any, tree: Tree, index: int) -> Any:
        import numpy

        array = numpy.asarray(value)
        if array.dtype == object:
            raise NarrowingError(
                f"an integer of {value.bit_length()} bits does not fit any dtype",
                remedy='Pass scalars="keep" to leave Python numbers as they are.',
                dtype="int",
                path=tree.path_of(index),
                target=self.target.name,
            )
        return array

    def crossing(self, source: Backend) -> Crossing:
        """The crossing from one source, made at first need."""
        found = self._crossings.get(source)
        if found is None:
            found = self._crossings[source] = Crossing(
                self.registry.catalog, source, self.target, self.options
            )
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.registry is default_registry() and self.registry.backends()
        target = self.target
        own = not known or known.get(target.name) is not target
        options = self.options
        if options.device is not None and not isinstance(options.device, str):
            options = replace(options, device=target.device_name(options.device))
        return _restore, (target if own else target.name, options)

    def __repr__(self) -> str:
        defaults = Options()
        names = ("device", "copy", "narrowing", "scalars", "unsupported")
        given = "".join(
            f", {name}={getattr(self.options, name)!r}"
            for name in names
            if getattr(self.options, name) != getattr(defaults, name)
        )
        return f"arrayferry.converter({self.target.name!r}{given})"


def _restore(target: Target, options: Options) -> Conversion:
    return make_conversion(target, options, default_registry())


def make_conversion(to: Target, options: Options, registry: Registry) -> Conversion:
    target = registry.backend(to)
    problem = target.problem()
    if problem is not None:
        raise problem
    registry.notice_imports()
    if options.device is not None:
        describe_route(registry.catalog, target, target, options.device, "cpu")
    return Conversion(target, options, registry)
