"""`Plans`: the plans that a conversion has written, and the choice of the plan for the next value.

Values often alternate: an observation, a reward, an observation again. So each plan stores which plan was used after
it, and that plan is tried first. A plan checks everything that it relies on, so it is safe to try a wrong plan. If the
plan does not handle the value, the right plan is looked up by the structure of the value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arrayferry._errors import ArrayFerryError
from arrayferry._observers import observers
from arrayferry._options import Options
from arrayferry._plugin.backend import Backend
from arrayferry._registry.catalog import Catalog
from arrayferry._tree.sequences import OBJECT_ARRAY
from arrayferry._tree.tree import Tree
from arrayferry._types import AnyTree
from arrayferry._utilities.cache import Cache, CostlyCache

from .pairs import Pairs
from .structure import Reader, reader_of, structure_of

if TYPE_CHECKING:
    from .plan import Plan

MAX_PLANS = 512
"""The maximum number of plans of a conversion."""
MAX_STRUCTURES = 4 * MAX_PLANS
"""The maximum number of structures in `Plans.counts`."""
NEVER = -(10**9)
"""The value in `Plans.counts` for a structure that cannot have a plan."""
STREAK = 16
"""After a plan has converted this many values in a row, the next values are passed to it without a search."""

_MISSED: Any = object()


def _missed(value: AnyTree) -> Any:
    return _MISSED


class Plans:
    """The plans of a conversion for one catalog, and the function that converts the next value.

    Args:
        catalog: the backends and converters from which routes are built.
        target: the backend of the results.
        options: the options of the conversion.

    Attributes:
        pairs: the `Pairs` that convert values without a plan.
        run: the function that converts the next value. If there are observers, it reports the conversion to them.
        counts: for the hash of each structure, how often it was converted without a plan. The structure itself is not
            stored, since it would keep its types alive.
    """

    def __init__(self, catalog: Catalog, target: Backend, options: Options) -> None:
        self.pairs: Pairs = Pairs(catalog, target, options, self.forget)
        self.forget()

    def forget(self) -> None:
        """Drop all plans."""
        self._use(self.slow_path)
        self._plans: CostlyCache[int, Plan] = CostlyCache(MAX_PLANS)
        self.counts: Cache[int, int] = Cache(MAX_STRUCTURES)
        self._readers: dict[type, Reader] = {}
        self._last: Plan | None = None
        self._streak = 0

    def _use(self, convert: Callable[[Any], Any]) -> None:
        """Convert all later values by the function `convert`."""
        self._convert: Callable[[Any], Any] = convert
        self.notice_observers()

    def notice_observers(self) -> None:
        """Start reporting conversions if there are observers, or stop if there are none."""
        while True:
            has_observers = bool(observers)
            self.run: Callable[[Any], Any] = self._watched if has_observers else self._convert
            # choose again if another thread has meanwhile added the first observer or removed the last
            if has_observers is bool(observers):
                return

    def _watched(self, value: AnyTree) -> Any:
        return self.convert_watched(self._convert, value)

    def convert_watched(self, convert: Callable[[Any], Any], value: AnyTree) -> Any:
        """Convert a value with a function, and report the conversion to the observers."""
        for observer in observers:
            return observer.watch(self.pairs, convert, value)
        self.notice_observers()  # no observer is left, for example in a forked process
        return convert(value)

    def slow_path(self, value: AnyTree) -> Any:
        """Convert a value without a plan, and count its structure."""
        __tracebackhide__ = True
        try:
            tree = Tree(value, self.pairs.kind_of, self.pairs.options)
            result = tree.build(self.pairs.convert_arrays(tree))
        except ArrayFerryError as error:
            # remove the frames of this package, which do not help users; the cause keeps its own traceback
            raise error.with_traceback(None) from error.__cause__
        self._learn(value, tree)
        return result

    @property
    def all(self) -> list[Plan]:
        """A list of all plans."""
        return list(self._plans.values())

    def _run(self, value: AnyTree) -> Any:
        """Convert a value. First try the `next` of the plan that was used last."""
        __tracebackhide__ = True
        last_plan = self._last
        plan = None if last_plan is None else last_plan.next
        if plan is not None:
            result = plan.run(value, _missed)
            if result is not _MISSED:
                if plan is not last_plan:
                    self._chosen(plan)
                else:
                    self._streak += 1
                    if self._streak >= STREAK:
                        self._use(plan.run)
                return result
        return self._search(value, plan)

    def _chosen(self, plan: Plan) -> None:
        self._last, self._streak = plan, 0
        self._plans.used.add(plan)

    def miss(self, value: AnyTree) -> Any:
        """Convert a value for which the directly called plan failed. From now on, search for the plan of each value."""
        __tracebackhide__ = True
        self._use(self._run)
        return self._search(value, self._last)

    def _search(self, value: AnyTree, tried: Plan | None) -> Any:
        """Convert a value with the plan for its structure, or without a plan if there is none.

        `tried` is a plan that has just failed for the value, and is not tried again, or None.
        """
        __tracebackhide__ = True
        try:
            plan = self._plans.get(hash(structure_of(value, self._readers)))
        except Exception:  # `slow_path`, called below, raises the error of a wrong value
            plan = None
        if plan is not None and plan is not tried:
            result = plan.run(value, _missed)
            if result is not _MISSED:
                if self._last is not None:
                    self._last.next = plan
                self._chosen(plan)
                return result
        return self.slow_path(value)

    def _learn(self, value: AnyTree, tree: Tree) -> None:
        """Write a plan for the structure of a value, if the structure was converted often enough without a plan.

        Args:
            value: the value.
            tree: the same value as a `Tree`.
        """
        if not tree.cacheable or not self._is_plain(tree):
            return
        try:
            readers = {type(branch.value): reader_of(branch) for branch in tree.branches}
            structure = structure_of(value, readers)
            key = hash(structure)  # hash() fails if a class in the structure cannot be hashed
        except Exception:
            return
        cached_plan = self._plans.get(key)
        if cached_plan is not None:
            if not cached_plan.with_routes:  # the plan failed for this value: write it with routes
                cached_plan.with_routes = True
                new_plan = self._write(tree, structure, with_routes=True)
                if new_plan is not None:
                    cached_plan.run, cached_plan.code = new_plan.run, new_plan.code
            return
        count = self.counts[key] = self.counts.get(key, 0) + 1
        # require more repetitions for long plans, which take tenths of a second to write, and if there are
        # many plans, since each is then used less often
        if count < 2 + len(tree.arrays) // 2_000 + len(self._plans) // 32:
            return
        if self._last is not None:
            self._plans.used.add(self._last)
        dropped_plans = self._plans.make_room(key)
        if dropped_plans is None:
            return
        if dropped_plans:
            for other_plan in (*self.all, *dropped_plans):
                other_plan.next = None  # a reference to a dropped plan would keep it in memory
        plan = self._write(tree, structure, with_routes=False)
        if plan is None:
            self.counts[key] = NEVER
            return
        plan.readers = readers
        all_readers = [other_plan.readers for other_plan in (*self.all, plan)]
        self._readers = {cls: reader for mapping in all_readers for cls, reader in mapping.items()}
        self._use(self._run if self._plans else plan.run)
        self._plans[key] = plan
        if self._last is not None:
            self._last.next = plan
        self._chosen(plan)

    def _is_plain(self, tree: Tree) -> bool:
        """Return whether a value may have a plan.

        A value has no plan if it contains an object array, a lazy array, or a container that is rebuilt and occurs
        twice. For lazy arrays, a plan would save little compared with the time to compute them.
        """
        return not any(
            branch.container is OBJECT_ARRAY or (branch.rebuilt and branch.repeated)
            for branch in tree.branches
        ) and not any(map(self.pairs.is_lazy, {kind.origin for kind in tree.kinds}))

    def _write(self, tree: Tree, structure: Any, *, with_routes: bool) -> Plan | None:
        from .plan import write_plan  # imported here: a first conversion does not need it

        snippet_for = functools.partial(self.pairs.snippet_for, with_routes=with_routes)
        return write_plan(tree, snippet_for, structure, self.pairs.target.name, self.miss)
